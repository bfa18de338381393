//! All options of nix-serve (starman and Plack) and of nix-serve-ng: names, effect and help.

/// An option of nix-serve.
#[derive(Debug)]
pub(super) struct OptionEntry {
    /// Its names: long ones first, then single letters.
    pub(super) names: &'static [&'static str],
    /// The name of its value, if it takes one.
    pub(super) value: Option<&'static str>,
    /// Its effect.
    pub(super) kind: OptionKind,
    /// The text for `--help`; for options without effect the reason.
    pub(super) help: &'static str,
}

/// The effect of an option.
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
    /// The option needs TLS, which floe does not support.
    Tls,
    /// The option concerns a thing that floe does not have. It gives a warning.
    NoEffect,
}

/// Returns the option with a name.
pub(super) fn find(name: &str) -> Option<&'static OptionEntry> {
    // Plack accepts underscores for dashes.
    let name = name.replace('_', "-");
    ENTRIES
        .iter()
        .find(|entry| entry.names.contains(&name.as_str()))
}

/// Returns the text of `--help`.
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
    text.push_str("  +RTS ... -RTS\n      floe has no Haskell runtime\n");
    text.push_str("\nRefused, because floe does not support TLS yet (use a proxy):\n");
    lines(&mut text, |kind| kind == OptionKind::Tls);
    text.push_str(
        "\nEnvironment: NIX_SECRET_KEY_FILE, NIX_REMOTE, NIX_STORE_DIR, NIX_STATE_DIR, \
         NIX_LOG_DIR\n",
    );
    text
}

/// Returns names and value, as in `-l, --listen HOST:PORT`.
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

/// All options, in the order of `--help`.
pub(super) const ENTRIES: &[OptionEntry] = &[
    with(
        &["listen", "l"],
        "HOST:PORT|:PORT|[IPV6]:PORT|SOCKET",
        OptionKind::Listen,
        "listen on this address; may be repeated [default: *:5000]",
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
        "the number of connections that may wait to be accepted [default: 1024]",
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
        "serve below this path, such as /cache",
    ),
    with(
        &["timeout"],
        "SECONDS",
        OptionKind::Timeout,
        "the default of all timeouts of clients [default: 600]",
    ),
    with(
        &["keepalive-timeout"],
        "SECONDS",
        OptionKind::KeepAliveTimeout,
        "the longest idle time of a connection between requests [default: 120]",
    ),
    with(
        &["read-timeout"],
        "SECONDS",
        OptionKind::ReadTimeout,
        "the longest time to receive the head of a request [default: 30]",
    ),
    flag(
        &["disable-keepalive"],
        OptionKind::KeepAlive(false),
        "close connections after one request",
    ),
    flag(
        &["enable-keepalive"],
        OptionKind::KeepAlive(true),
        "keep connections open for more requests (the default)",
    ),
    with(
        &["access-log"],
        "FILE",
        OptionKind::AccessLog,
        "write the access log to this file instead of stdout",
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
        "write errors to this file once the server listens",
    ),
    flag(
        &["daemonize", "D"],
        OptionKind::Daemonize,
        "serve in the background; the command ends once the server listens",
    ),
    with(
        &["pid"],
        "FILE",
        OptionKind::Pid,
        "write the process ID to this file while serving",
    ),
    with(
        &["user"],
        "USER",
        OptionKind::User,
        "switch to this user once the server listens",
    ),
    with(
        &["group"],
        "GROUP",
        OptionKind::Group,
        "switch to this group once the server listens [default: the user's]",
    ),
    flag(&["help", "h"], OptionKind::Help, "print this"),
    flag(&["version", "v"], OptionKind::Version, "print the version"),
    with(&["ssl-cert"], "FILE", OptionKind::Tls, "the certificate"),
    with(&["ssl-key"], "FILE", OptionKind::Tls, "its key"),
    flag(&["enable-ssl"], OptionKind::Tls, "use TLS on TCP sockets"),
    with(
        &["workers"],
        "N",
        OptionKind::NoEffect,
        "floe has no worker processes and serves all connections at once",
    ),
    with(
        &["max-requests"],
        "N",
        OptionKind::NoEffect,
        "floe has no worker processes to replace",
    ),
    flag(
        &["preload-app"],
        OptionKind::NoEffect,
        "floe loads no application",
    ),
    flag(
        &["disable-proctitle", "enable-proctitle"],
        OptionKind::NoEffect,
        "floe never changes the title of its process",
    ),
    with(&["env", "E"], "NAME", OptionKind::NoEffect, NO_PLACK),
    with(&["I"], "DIR", OptionKind::NoEffect, NO_PERL),
    with(&["M"], "MODULE", OptionKind::NoEffect, NO_PERL),
    with(&["e"], "CODE", OptionKind::NoEffect, NO_PERL),
    with(
        &["app", "a"],
        "FILE",
        OptionKind::NoEffect,
        "floe loads no application",
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

const NO_PERL: &str = "floe runs no Perl code";
const NO_PLACK: &str = "floe does not use Plack";
const NO_RELOAD: &str = "floe has no application to reload";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_names_are_unique() {
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
    fn help_and_guide_contain_every_option() {
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
    fn help_lines_fit_on_a_terminal() {
        for line in help().lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
