//! Valid and invalid configurations.

/// The configuration of a machine, and the options of one call. In texts, `{}` is its directory.
#[derive(Clone, Copy, Default)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The contents of the system's nix.conf.
    pub(super) system: &'static str,
    /// Other files, as pairs of relative path and contents.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Environment variables. If `NIX_USER_CONF_FILES` is not among them, there are no user files.
    pub(super) variables: &'static [(&'static str, &'static str)],
    pub(super) options: &'static [&'static str],
    /// Whether the case uses a feature that Nix 2.8 lacks.
    pub(super) needs_newer_nix: bool,
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "empty configuration",
        ..EMPTY
    },
    Case {
        name: "each setting once",
        system: "substituters = https://a.example/x?priority=3 file:///b\n\
                 trusted-substituters = https://z.example https://y.example https://z.example\n\
                 require-sigs = false\nhttp-connections = 7\nconnect-timeout = 8\n\
                 stalled-download-timeout = 9\ndownload-attempts = 10\nhttp2 = false\n\
                 narinfo-cache-positive-ttl = 11\nnarinfo-cache-negative-ttl = 0\n\
                 use-sqlite-wal = no\nfsync-metadata = 0\nauto-optimise-store = yes\n\
                 allow-symlinked-store = true\n\
                 build-users-group =\nuser-agent-suffix = a  b\tc\nnetrc-file = /x/netrc\n\
                 ssl-cert-file = /x/certificates\n\
                 trusted-public-keys = a-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
        ..EMPTY
    },
    Case {
        name: "store from NIX_REMOTE",
        variables: &[("NIX_REMOTE", "local")],
        ..EMPTY
    },
    Case {
        name: "store from nix.conf over NIX_REMOTE",
        system: "store = local\n",
        variables: &[("NIX_REMOTE", "/elsewhere")],
        ..EMPTY
    },
    Case {
        name: "deprecated names",
        system: "binary-caches = https://a.example\ntrusted-binary-caches = https://b.example\n\
                 binary-cache-public-keys = a-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\
                 binary-caches-parallel-connections = 2\nsigned-binary-caches = no\n",
        ..EMPTY
    },
    Case {
        name: "extra- before and after the setting",
        system: "extra-substituters = https://gone.example\nsubstituters = https://a.example\n\
                 extra-substituters = https://b.example https://a.example\n\
                 extra-binary-caches = https://c.example\nextra-http2 = false\n\
                 extra-trusted-substituters = https://z.example\n\
                 extra-trusted-substituters = https://y.example https://z.example\n\
                 extra-trusted-public-keys = \
                 a-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
        ..EMPTY
    },
    Case {
        name: "last value wins",
        system: "http2 = false\nhttp2 = true\nhttp-connections = 1\nhttp-connections = 002\n\
                 substituters = https://a.example\nsubstituters =\ntrusted-public-keys =\n",
        ..EMPTY
    },
    Case {
        name: "comments, whitespace and line ends",
        system: "# http2 = false\n\n  \t\r\n\thttp-connections\t=\t3 # = 4\r\n#\n\
                 user-agent-suffix = a#b\nrequire-sigs = false",
        ..EMPTY
    },
    Case {
        name: "includes",
        system: "http-connections = 1\ninclude more/a.conf\n!include absent.conf\n\
                 include {}/etc/b.conf\ndownload-attempts = 9\n",
        files: &[
            (
                "etc/more/a.conf",
                "http-connections = 2\ninclude ../c.conf\nconnect-timeout = 4\n",
            ),
            ("etc/b.conf", "user-agent-suffix = b"),
            ("etc/c.conf", "download-attempts = 3\nconnect-timeout = 3\n"),
        ],
        ..EMPTY
    },
    Case {
        name: "user files over system file, first over second",
        system: "http-connections = 1\nconnect-timeout = 1\ndownload-attempts = 1\n\
                 extra-substituters = https://system.example\n",
        files: &[
            (
                "first",
                "connect-timeout = 2\nextra-substituters = https://first.example\n",
            ),
            (
                "second",
                "connect-timeout = 3\nhttp-connections = 3\n\
                 extra-substituters = https://second.example\n",
            ),
        ],
        variables: &[("NIX_USER_CONF_FILES", "{}/first:{}/absent:{}/second")],
        ..EMPTY
    },
    Case {
        name: "files in XDG directories",
        files: &[
            ("x/nix/nix.conf", "http-connections = 2\n"),
            (
                "y/nix/nix.conf",
                "http-connections = 3\nconnect-timeout = 3\n",
            ),
            (
                "z/nix/nix.conf",
                "connect-timeout = 4\ndownload-attempts = 4\n",
            ),
        ],
        variables: &[
            ("NIX_USER_CONF_FILES", UNSET),
            ("XDG_CONFIG_HOME", "{}/x"),
            ("XDG_CONFIG_DIRS", "{}/y:{}/z"),
        ],
        ..EMPTY
    },
    Case {
        name: "file in the home directory",
        files: &[("home/.config/nix/nix.conf", "http-connections = 2\n")],
        variables: &[("NIX_USER_CONF_FILES", UNSET), ("XDG_CONFIG_DIRS", "")],
        ..EMPTY
    },
    Case {
        name: "NIX_CONFIG_HOME",
        files: &[
            ("own/nix.conf", "http-connections = 2\n"),
            ("home/.config/nix/nix.conf", "http-connections = 3\n"),
        ],
        variables: &[
            ("NIX_USER_CONF_FILES", UNSET),
            ("NIX_CONFIG_HOME", "{}/own"),
            ("XDG_CONFIG_DIRS", ""),
        ],
        needs_newer_nix: true,
        ..EMPTY
    },
    Case {
        name: "NIX_CONFIG over files, options over NIX_CONFIG",
        system: "http-connections = 1\nconnect-timeout = 1\ndownload-attempts = 1\n",
        files: &[
            ("user", "connect-timeout = 2\ndownload-attempts = 2\n"),
            ("included", "stalled-download-timeout = 3\n"),
        ],
        variables: &[
            ("NIX_USER_CONF_FILES", "{}/user"),
            (
                "NIX_CONFIG",
                "download-attempts = 3 # three\ninclude {}/included\nhttp2 = false\n\
                 extra-substituters = https://b.example",
            ),
        ],
        options: &[
            "--option",
            "http2",
            "true",
            "--option",
            "http-connections",
            "4",
            "--option",
            "extra-substituters",
            "https://c.example  https://d.example",
            "--option",
            "http-connections",
            "5",
        ],
        ..EMPTY
    },
    Case {
        name: "empty NIX_CONFIG",
        system: "http-connections = 1\n",
        variables: &[("NIX_CONFIG", "")],
        ..EMPTY
    },
    Case {
        name: "unreadable files",
        system: "http-connections = 1\ninclude directory\nconnect-timeout = 2\n",
        files: &[("etc/directory/file", "")],
        variables: &[("NIX_USER_CONF_FILES", "{}/etc")],
        ..EMPTY
    },
    Case {
        name: "unit suffixes and non-canonical paths",
        system: "narinfo-cache-positive-ttl = 3K\nhttp-connections = +1m\n\
                 netrc-file = /a/../b//c/./d\nssl-cert-file = /e/../f\n",
        needs_newer_nix: true,
        ..EMPTY
    },
    Case {
        name: "NIX_SSL_CERT_FILE over SSL_CERT_FILE",
        variables: &[("NIX_SSL_CERT_FILE", "/one"), ("SSL_CERT_FILE", "/two")],
        ..EMPTY
    },
    Case {
        name: "only SSL_CERT_FILE",
        variables: &[("SSL_CERT_FILE", "/two")],
        ..EMPTY
    },
    Case {
        name: "empty NIX_SSL_CERT_FILE over SSL_CERT_FILE",
        variables: &[("NIX_SSL_CERT_FILE", ""), ("SSL_CERT_FILE", "/two")],
        ..EMPTY
    },
    Case {
        name: "ssl-cert-file over NIX_SSL_CERT_FILE",
        system: "ssl-cert-file = /file\n",
        variables: &[("NIX_SSL_CERT_FILE", "/one")],
        ..EMPTY
    },
    Case {
        name: "empty ssl-cert-file",
        system: "ssl-cert-file =\n",
        needs_newer_nix: true,
        ..EMPTY
    },
];

/// Configurations that every Nix rejects, and a part of floe's message.
pub(super) const INVALID_CASES: &[(Case, &str)] = &[
    (
        invalid_conf("\nhttp2\n"),
        "etc/nix.conf:2: \"http2\" is not followed by =",
    ),
    (
        invalid_conf("http2=true"),
        "etc/nix.conf:1: \"http2\" is not followed by =",
    ),
    (
        invalid_conf("http2 =true"),
        "etc/nix.conf:1: \"http2\" is not followed by =",
    ),
    (
        invalid_conf("http2 true"),
        "etc/nix.conf:1: \"http2\" is not followed by =",
    ),
    (
        invalid_conf("other-thing # = x"),
        "etc/nix.conf:1: \"other-thing\" is not followed by =",
    ),
    (
        invalid_conf("include"),
        "etc/nix.conf:1: include is followed by 0 words",
    ),
    (
        invalid_conf("#\n!include a b"),
        "etc/nix.conf:2: !include is followed by 2 words",
    ),
    (
        invalid_conf("include absent"),
        "etc/absent: it does not exist",
    ),
    (
        invalid_conf("\n\nhttp2 = maybe"),
        "etc/nix.conf:3: cannot set http2 to \"maybe\": it takes true",
    ),
    (
        invalid_conf("http2 = maybe\nhttp2 = true"),
        "etc/nix.conf:1: cannot set http2 to \"maybe\"",
    ),
    (
        invalid_conf("require-sigs ="),
        "etc/nix.conf:1: cannot set require-sigs to \"\"",
    ),
    (
        invalid_conf("connect-timeout = -1"),
        "cannot set connect-timeout to \"-1\": it takes a whole",
    ),
    (
        invalid_conf("download-attempts = 4294967296"),
        "it takes a whole number from 0 to 4294967295",
    ),
    (
        invalid_conf("binary-caches-parallel-connections = x"),
        "cannot set binary-caches-parallel-connections to \"x\"",
    ),
    (
        Case {
            variables: &[("NIX_CONFIG", "http2 = true\nhttp2 = 2")],
            ..EMPTY
        },
        "NIX_CONFIG:2: cannot set http2 to \"2\"",
    ),
    (
        Case {
            variables: &[("NIX_CONFIG", "include relative")],
            ..EMPTY
        },
        "NIX_CONFIG:1: cannot include relative: NIX_CONFIG has no directory",
    ),
    (
        Case {
            files: &[("user", "\nbad")],
            variables: &[("NIX_USER_CONF_FILES", "{}/user")],
            ..EMPTY
        },
        "user:2: \"bad\" is not followed by =",
    ),
];

pub(super) const EMPTY: Case = Case {
    name: "",
    system: "",
    files: &[],
    variables: &[],
    options: &[],
    needs_newer_nix: false,
};

pub(super) const fn invalid_conf(system: &'static str) -> Case {
    Case { system, ..EMPTY }
}

/// Marks a variable that must be unset.
pub(super) const UNSET: &str = "(unset)";
