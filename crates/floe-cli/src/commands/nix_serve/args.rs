//! All options of nix-serve (starman and Plack) and of nix-serve-ng.
//!
//! The text of `--help` is the only list of them. The parser reads their names, their values and
//! the reasons of its warnings from this text.

/// An option of nix-serve.
#[derive(Debug)]
pub(crate) struct OptionEntry {
    /// Its names with their dashes: single letters first, then long ones.
    pub(crate) names: Vec<&'static str>,
    /// The name of its value, if it takes one.
    pub(crate) value: Option<&'static str>,
    pub(crate) effect: Effect,
    /// The text for `--help`; for ignored options the reason.
    pub(crate) help: &'static str,
}

/// The effect of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Applied,
    /// The option concerns a thing that floe does not have. It gives a warning.
    Ignored,
}

impl OptionEntry {
    /// Returns its last name without dashes, which is the long one if it has one.
    pub(crate) fn key(&self) -> &'static str {
        let name = self.names.last().copied().unwrap_or_default();
        name.trim_start_matches('-')
    }
}

/// Returns the option with a name, which has no dashes in front.
pub(crate) fn find(name: &str) -> Option<OptionEntry> {
    // Plack accepts underscores for dashes.
    let name = name.replace('_', "-");
    let has_name = |known: &&str| known.trim_start_matches('-') == name;
    entries().find(|entry| entry.names.iter().any(has_name))
}

/// Returns all options, in the order of `--help`.
pub(crate) fn entries() -> impl Iterator<Item = OptionEntry> {
    let parts = [(APPLIED, Effect::Applied), (IGNORED, Effect::Ignored)];
    parts.into_iter().flat_map(|(text, effect)| {
        let mut lines = text.lines().map(str::trim_start);
        std::iter::from_fn(move || {
            let (spelling, help) = (lines.next()?, lines.next()?);
            let words = spelling.split(' ');
            let (names, value): (Vec<&str>, Vec<&str>) =
                words.partition(|word| word.starts_with('-'));
            let names = names.iter().map(|name| name.trim_end_matches(','));
            Some(OptionEntry {
                names: names.collect(),
                value: value.first().copied(),
                effect,
                help,
            })
        })
    })
}

/// Returns the text of `--help` before the examples.
pub(crate) fn help() -> String {
    format!(
        "Serves a Nix store as a binary cache: floe under the name nix-serve.\n\n\
         Usage: nix-serve [OPTION]...\n\n\
         {APPLIED}\n\
         {IGNORED_HEADING}:\n\
         {IGNORED}  +RTS ... -RTS\n      {NO_HASKELL}\n\n\
         Environment: {}\n",
        ENVIRONMENT.join(", "),
    )
}

/// The options that floe applies: a line with the names and the value, and a line of help.
const APPLIED: &str = "  -l, --listen HOST:PORT|:PORT|[IPV6]:PORT|SOCKET
      listen on this address; may be repeated [default: *:5000]
  -o, --host HOST
      listen on this host, or on *, *4, !4, *6, !6 [default: *]
  -p, --port PORT
      listen on this port; 0 lets the system choose one [default: 5000]
  -S, --socket PATH
      listen on a Unix socket instead
  --ssl-cert FILE
      use TLS on TCP addresses with this certificate, a PEM file that its issuers follow
  --ssl-key FILE
      the private key of the certificate, a PEM file
  --enable-ssl
      refuse to start without --ssl-cert and --ssl-key
  --backlog N
      the number of connections that may wait to be accepted [default: 1024]
  --store STORE
      the store: auto, local, a directory, local?root=DIR; daemon means the store behind it
  --priority N
      clients try caches with lower numbers first [default: 30]
  --path PATH
      serve below this path, such as /cache
  --timeout SECONDS
      the default of all timeouts of clients [default: 600]
  --keepalive-timeout SECONDS
      the longest idle time of a connection between requests [default: 120]
  --read-timeout SECONDS
      the longest time to receive the head of a request [default: 30]
  --disable-keepalive
      close connections after one request
  --enable-keepalive
      keep connections open for more requests (the default)
  --access-log FILE
      write the access log to this file instead of stdout
  --log-format FORMAT
      quiet, default, normal (both as combined), combined, common, real-ip, verbose, debug, json
  --quiet
      no access log
  --verbose
      as --log-format verbose
  --error-log FILE
      write errors to this file once the server listens
  -D, --daemonize
      serve in the background; the command ends once the server listens
  --pid FILE
      write the process ID to this file while serving
  --user USER
      switch to this user once the server listens
  --group GROUP
      switch to this group once the server listens [default: the user's]
  -h, --help
      print this
  -v, --version
      print the version
";

/// The options without effect, each with the reason.
const IGNORED: &str = "  --workers N
      floe has no worker processes and serves all connections at once
  --max-requests N
      floe has no worker processes to replace
  --preload-app
      floe loads no application
  --disable-proctitle, --enable-proctitle
      floe never changes the title of its process
  -E, --env NAME
      floe does not use Plack
  -I DIR
      floe runs no Perl code
  -M MODULE
      floe runs no Perl code
  -e CODE
      floe runs no Perl code
  -a, --app FILE
      floe loads no application
  -s, --server NAME
      floe does not use Plack
  -L, --loader NAME
      floe does not use Plack
  -r, --reload
      floe has no application to reload
  -R, --Reload DIR,DIR
      floe has no application to reload
  --no-default-middleware, --nodefault-middleware, --default-middleware
      floe does not use Plack
";

/// The heading of the options without effect.
pub(crate) const IGNORED_HEADING: &str = "Accepted without effect, with a warning";

/// The variables that floe reads under this name.
pub(crate) const ENVIRONMENT: [&str; 5] = [
    "NIX_SECRET_KEY_FILE",
    "NIX_REMOTE",
    "NIX_STORE_DIR",
    "NIX_STATE_DIR",
    "NIX_LOG_DIR",
];

/// The reason why `+RTS … -RTS` has no effect.
pub(crate) const NO_HASKELL: &str = "floe has no Haskell runtime";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_names_are_unique() {
        let mut names: Vec<&str> = entries().flat_map(|entry| entry.names).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn entries_have_the_parts_of_their_lines() {
        let listen = find("listen").unwrap();
        assert_eq!(listen.names, ["-l", "--listen"]);
        assert_eq!(listen.value, Some("HOST:PORT|:PORT|[IPV6]:PORT|SOCKET"));
        assert!(listen.help.starts_with("listen on this address"));
        assert_eq!(find("I").unwrap().key(), "I");
        let lines = [APPLIED, IGNORED].map(|text| text.lines().count());
        assert_eq!(lines.iter().sum::<usize>(), 2 * entries().count());
        for entry in entries() {
            assert!(
                !entry.names.is_empty() && !entry.help.is_empty(),
                "{entry:?}"
            );
        }
    }

    #[test]
    fn guide_contains_every_option() {
        let guide = include_str!("../../../../../docs/moving-from-nix-serve.md");
        for entry in entries() {
            let is_in_guide = |name: &&str| guide.contains(&format!("`{name}"));
            assert!(entry.names.iter().any(is_in_guide), "guide: {entry:?}");
        }
    }

    #[test]
    fn help_lines_fit_on_a_terminal() {
        for line in help().lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
