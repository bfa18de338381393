//! Every option of nix-serve (starman and Plack) and of nix-serve-ng: its names, its kind, its
//! words in `--help`.

/// An option.
#[derive(Debug)]
pub(super) struct OptionEntry {
    /// All its names: long ones first, single letters after them.
    pub(super) names: &'static [&'static str],
    /// What its value is called, if it takes one.
    pub(super) value: Option<&'static str>,
    /// What it does.
    pub(super) kind: OptionKind,
    /// For those without effect the reason, for the others what it does.
    pub(super) help: &'static str,
}

/// What an option does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionKind {
    Listen,
    Host,
    Port,
    Socket,
    Backlog,
    User,
    Group,
    Pid,
    ErrorLog,
    AccessLog,
    Daemonize,
    KeepAlive(bool),
    KeepAliveTimeout,
    ReadTimeout,
    Timeout,
    Priority,
    Store,
    Quiet,
    Verbose,
    LogFormat,
    Path,
    Help,
    Version,
    /// It needs TLS, which floe does not speak.
    Tls,
    /// It is about something that floe does not have; there is a warning.
    NoEffect,
}

/// The option of that name.
pub(super) fn find(name: &str) -> Option<&'static OptionEntry> {
    // Plack turns every dash of a name into an underscore, and so takes both.
    let name = name.replace('_', "-");
    ENTRIES
        .iter()
        .find(|entry| entry.names.contains(&name.as_str()))
}

/// What `--help` prints.
pub(super) fn help() -> String {
    let mut text = String::from(
        "Serves a Nix store as a binary cache: floe under the name nix-serve.\n\n\
         Usage: nix-serve [OPTION]...\n\n",
    );
    let lines = |text: &mut String, wanted: fn(OptionKind) -> bool| {
        for entry in ENTRIES.iter().filter(|entry| wanted(entry.kind)) {
            text.push_str(&format!("  {}\n      {}\n", spelling(entry), entry.help));
        }
    };
    lines(&mut text, |kind| {
        !matches!(kind, OptionKind::Tls | OptionKind::NoEffect)
    });
    text.push_str("\nAccepted without effect, with a warning:\n");
    lines(&mut text, |kind| kind == OptionKind::NoEffect);
    text.push_str("  +RTS ... -RTS\n      there is no Haskell runtime to set\n");
    text.push_str("\nRefused, for floe does not speak TLS itself yet (use a proxy):\n");
    lines(&mut text, |kind| kind == OptionKind::Tls);
    text.push_str(
        "\nEnvironment: NIX_SECRET_KEY_FILE, NIX_REMOTE, NIX_STORE_DIR, NIX_STATE_DIR, \
         NIX_LOG_DIR\n",
    );
    text
}

/// `-l, --listen HOST:PORT`.
fn spelling(entry: &OptionEntry) -> String {
    let (short, long): (Vec<&str>, Vec<&str>) =
        entry.names.iter().partition(|name| name.len() == 1);
    let short = short.iter().map(|name| format!("-{name}"));
    let long = long.iter().map(|name| format!("--{name}"));
    let names = short.chain(long).collect::<Vec<_>>().join(", ");
    match entry.value {
        Some(value) => format!("{names} {value}"),
        None => names,
    }
}

const fn with(
    names: &'static [&'static str],
    value: &'static str,
    kind: OptionKind,
    help: &'static str,
) -> OptionEntry {
    OptionEntry {
        names,
        value: Some(value),
        kind,
        help,
    }
}

const fn flag(names: &'static [&'static str], kind: OptionKind, help: &'static str) -> OptionEntry {
    OptionEntry {
        names,
        value: None,
        kind,
        help,
    }
}

/// In the order of `--help`.
pub(super) const ENTRIES: &[OptionEntry] = &[
    with(
        &["listen", "l"],
        "HOST:PORT|:PORT|[IPV6]:PORT|SOCKET",
        OptionKind::Listen,
        "listen there; may be repeated [default: *:5000]",
    ),
    with(
        &["host", "o"],
        "HOST",
        OptionKind::Host,
        "listen on this host, or on *, *4, !4, *6, !6 [default: *]",
    ),
    with(
        &["port", "p"],
        "PORT",
        OptionKind::Port,
        "listen on this port; 0 lets the system choose one [default: 5000]",
    ),
    with(
        &["socket", "S"],
        "PATH",
        OptionKind::Socket,
        "listen on a Unix socket instead",
    ),
    with(
        &["backlog"],
        "N",
        OptionKind::Backlog,
        "how many connections may wait to be accepted [default: 1024]",
    ),
    with(
        &["store"],
        "STORE",
        OptionKind::Store,
        "the store: auto, local, a directory, local?root=DIR; daemon means the store behind it",
    ),
    with(
        &["priority"],
        "N",
        OptionKind::Priority,
        "clients ask the cache with the lowest priority first [default: 30]",
    ),
    with(
        &["path"],
        "PATH",
        OptionKind::Path,
        "serve below this path, as in /cache",
    ),
    with(
        &["timeout"],
        "SECONDS",
        OptionKind::Timeout,
        "how long a client may do nothing, where no other option says it [default: 600]",
    ),
    with(
        &["keepalive-timeout"],
        "SECONDS",
        OptionKind::KeepAliveTimeout,
        "how long a connection may idle between two requests [default: 120]",
    ),
    with(
        &["read-timeout"],
        "SECONDS",
        OptionKind::ReadTimeout,
        "how long a client may take to send the head of a request [default: 30]",
    ),
    flag(
        &["disable-keepalive"],
        OptionKind::KeepAlive(false),
        "one request for each connection",
    ),
    flag(
        &["enable-keepalive"],
        OptionKind::KeepAlive(true),
        "many requests for each connection, which is the default",
    ),
    with(
        &["access-log"],
        "FILE",
        OptionKind::AccessLog,
        "write the access log there instead of to stdout",
    ),
    with(
        &["log-format"],
        "FORMAT",
        OptionKind::LogFormat,
        "quiet, default or normal (Apache's), real-ip, verbose or debug [default: default]",
    ),
    flag(&["quiet"], OptionKind::Quiet, "no access log"),
    flag(&["verbose"], OptionKind::Verbose, "as --log-format verbose"),
    with(
        &["error-log"],
        "FILE",
        OptionKind::ErrorLog,
        "write errors there, once the server listens",
    ),
    flag(
        &["daemonize", "D"],
        OptionKind::Daemonize,
        "serve in the background; ends when the server listens",
    ),
    with(
        &["pid"],
        "FILE",
        OptionKind::Pid,
        "hold the number of the process there while it serves",
    ),
    with(
        &["user"],
        "USER",
        OptionKind::User,
        "become this user once the server listens",
    ),
    with(
        &["group"],
        "GROUP",
        OptionKind::Group,
        "become this group once the server listens [default: that of the user]",
    ),
    flag(&["help", "h"], OptionKind::Help, "print this"),
    flag(&["version", "v"], OptionKind::Version, "print the version"),
    with(&["ssl-cert"], "FILE", OptionKind::Tls, "the certificate"),
    with(&["ssl-key"], "FILE", OptionKind::Tls, "its key"),
    flag(&["enable-ssl"], OptionKind::Tls, "TLS on every TCP socket"),
    with(
        &["workers"],
        "N",
        OptionKind::NoEffect,
        "there are no worker processes: every connection is served at once",
    ),
    with(
        &["max-requests"],
        "N",
        OptionKind::NoEffect,
        "there are no worker processes to replace",
    ),
    flag(
        &["preload-app"],
        OptionKind::NoEffect,
        "there is no application to load",
    ),
    flag(
        &["disable-proctitle", "enable-proctitle"],
        OptionKind::NoEffect,
        "the title of the process is never changed",
    ),
    with(&["env", "E"], "NAME", OptionKind::NoEffect, NO_PLACK),
    with(&["I"], "DIR", OptionKind::NoEffect, NO_PERL),
    with(&["M"], "MODULE", OptionKind::NoEffect, NO_PERL),
    with(&["e"], "CODE", OptionKind::NoEffect, NO_PERL),
    with(
        &["app", "a"],
        "FILE",
        OptionKind::NoEffect,
        "there is no application to load",
    ),
    with(&["server", "s"], "NAME", OptionKind::NoEffect, NO_PLACK),
    with(&["loader", "L"], "NAME", OptionKind::NoEffect, NO_PLACK),
    flag(&["reload", "r"], OptionKind::NoEffect, NO_RELOAD),
    with(&["Reload", "R"], "DIR,DIR", OptionKind::NoEffect, NO_RELOAD),
    flag(
        &[
            "no-default-middleware",
            "nodefault-middleware",
            "default-middleware",
        ],
        OptionKind::NoEffect,
        NO_PLACK,
    ),
];

const NO_PERL: &str = "there is no Perl that could run it";
const NO_PLACK: &str = "there is no Plack behind floe";
const NO_RELOAD: &str = "there is no application that could change";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_have_a_name_in_common() {
        let mut names: Vec<&str> = ENTRIES
            .iter()
            .flat_map(|entry| entry.names)
            .copied()
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_option_stands_in_the_help_and_in_the_guide_for_those_who_move() {
        let guide = include_str!("../../../../../docs/moving-from-nix-serve.md");
        let help = help();
        for entry in ENTRIES {
            assert!(help.contains(&spelling(entry)), "help: {entry:?}");
            let name = match entry.names[0] {
                letter if letter.len() == 1 => format!("`-{letter}"),
                long => format!("`--{long}"),
            };
            assert!(guide.contains(&name), "guide: {name}");
        }
    }

    #[test]
    fn lines_of_the_help_fit_on_a_terminal() {
        for line in help().lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
