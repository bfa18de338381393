//! The parts of a manual page that the arguments do not give: description, examples, files and
//! related pages.
//! Each command has them in its folder. The examples are also at the end of its `--help`.

/// The parts of one page.
#[derive(Debug)]
pub(crate) struct Page {
    /// The name of the page, such as `floe-install`.
    pub(crate) name: &'static str,
    /// The paragraphs that explain the command.
    pub(crate) description: &'static [&'static str],
    pub(crate) examples: &'static [Example],
    pub(crate) files: &'static [File],
    /// The related pages with their sections, beside floe(1).
    pub(crate) see_also: &'static [&'static str],
}

/// An example of one or more commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Example {
    /// The task that the example does, as a request.
    pub(crate) purpose: &'static str,
    /// The command line, as a shell takes it.
    pub(crate) line: &'static str,
    /// Whether the page of floe has the example too.
    pub(crate) is_on_main_page: bool,
}

impl Example {
    pub(crate) const fn new(purpose: &'static str, line: &'static str) -> Example {
        Example {
            purpose,
            line,
            is_on_main_page: false,
        }
    }

    /// Adds the example to the page of floe.
    pub(crate) const fn on_main_page(mut self) -> Example {
        self.is_on_main_page = true;
        self
    }

    /// Returns the last part of `--help`.
    pub(crate) fn list(examples: &[Example]) -> String {
        let examples = examples.iter();
        let examples = examples.map(|it| format!("\n  {}:\n      {}", it.purpose, it.line));
        format!("Examples:{}", examples.collect::<String>())
    }
}

/// A file that floe reads or writes, or several with the same purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) names: &'static str,
    pub(crate) content: &'static str,
}

/// The store of this machine.
pub(crate) const STORE: File = File {
    names: "/nix/store, /nix/var/nix/db/db.sqlite",
    content: "the store of this machine and its database. With a root directory DIR, both are \
              below DIR.",
};

/// The store of a user on a machine without Nix.
pub(crate) const USER_STORE: File = File {
    names: "$XDG_DATA_HOME/nix/root (~/.local/share/nix/root)",
    content: "the root directory of a user's own store, on a machine without /nix/var/nix",
};

/// The settings.
pub(crate) const NIX_CONF: File = File {
    names: "/etc/nix/nix.conf, ~/.config/nix/nix.conf",
    content: "the settings of the system and of the user; floe-config(1) prints them",
};

/// The logins of caches.
pub(crate) const NETRC: File = File {
    names: "/etc/nix/netrc",
    content: "user names and passwords for caches; the setting netrc-file names other files",
};

/// The credentials of buckets.
pub(crate) const AWS: File = File {
    names: "~/.aws/credentials, ~/.aws/config",
    content: "credentials and regions for buckets of S3, in profiles",
};

/// The remembered names.
pub(crate) const NAMES: File = File {
    names: "$XDG_CACHE_HOME/floe/names.json (~/.cache/floe/names.json)",
    content: "the paths of the names that were looked up, for use without a network. You may \
              delete the file at any time.",
};

/// The lists of name sources.
pub(crate) const LISTS: File = File {
    names: "$XDG_CACHE_HOME/floe/lists/ (~/.cache/floe/lists/)",
    content: "the lists of store paths that name sources have sent. You may delete them at any \
              time.",
};

/// The narinfo disk cache.
pub(crate) const NARINFOS: File = File {
    names: "$XDG_CACHE_HOME/floe/narinfos.sqlite (~/.cache/floe/narinfos.sqlite)",
    content: "replies of caches about paths, so that floe need not query them again. You may \
              delete the file at any time.",
};
