//! The manual pages of `floe serve` and of related commands.

use crate::page::{Example, Page, STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-serve",
        description: &[
            "Serves the valid paths of a live store over HTTP or HTTPS in the form of a \
                 binary cache, for Nix, floe and other clients. Paths that appear in the store \
                 are served at once. It needs no Nix, no daemon and no root, and changes nothing \
                 in the store, unless --receive-into-store lets clients add paths.",
            "SIGHUP reads the configuration, keys, certificates and logins again, SIGTERM ends the \
                 server after the running responses.",
        ],
        examples: &[
            Example::new(
                "Serve the store of this machine as a signed binary cache",
                "floe serve --listen 127.0.0.1:5000 --secret-key-file cache.key",
            )
            .on_main_page(),
            Example::new(
                "Serve on all addresses with TLS",
                "floe serve --listen :443 --tls-cert fullchain.pem --tls-key privkey.pem",
            ),
            Example::new(
                "Test the options, and print what would be served",
                "floe serve --secret-key-file cache.key --check",
            ),
            Example::new(
                "Write a configuration file with the effective settings, and serve with it",
                "floe serve --port 80 --print-config > floe.toml && floe serve --config floe.toml",
            ),
            Example::new(
                "Serve only clients with a login, which floe serve auth makes",
                "floe serve --auth-file /etc/floe/logins",
            ),
        ],
        files: &[STORE],
        see_also: &["floe-serve-auth(1)", "floe-key(1)", "nix-serve(1)"],
    },
    Page {
        name: "floe-serve-auth",
        description: &[
            "Changes the file of logins that floe serve --auth-file reads. A login is a user \
                 with a password, or a token. A running server reads the file again at SIGHUP.",
        ],
        examples: &[ADD_USER, ADD_TOKEN, REMOVE],
        files: &[],
        see_also: &["floe-serve(1)", "htpasswd(1)"],
    },
    Page {
        name: "floe-serve-auth-add-user",
        description: &[
            "Adds a user, or replaces the password of one. The password is read from the \
                 terminal, or from a line on stdin, and only its hash is written.",
        ],
        examples: &[ADD_USER],
        files: &[],
        see_also: &["floe-serve-auth(1)"],
    },
    Page {
        name: "floe-serve-auth-add-token",
        description: &[
            "Adds a token with a name, and prints it once. The file has only its hash. \
                 Clients send the token as the password of any user.",
        ],
        examples: &[ADD_TOKEN],
        files: &[],
        see_also: &["floe-serve-auth(1)"],
    },
    Page {
        name: "floe-serve-auth-remove",
        description: &[
            "Removes a user or a token from the file. Send SIGHUP to the server, so that it \
                 refuses the login at once.",
        ],
        examples: &[REMOVE],
        files: &[],
        see_also: &["floe-serve-auth(1)"],
    },
    Page {
        name: "floe-serve-auth-list",
        description: &[
            "Prints the logins of the file with their kinds, their ends and their scopes. It \
                 prints no password and no token.",
        ],
        examples: &[Example::new(
            "Show the logins, without passwords and tokens",
            "floe serve auth list --auth-file /etc/floe/logins",
        )],
        files: &[],
        see_also: &["floe-serve-auth(1)"],
    },
];

const ADD_USER: Example = Example::new(
    "Add a user, and type the password",
    "floe serve auth add-user --auth-file /etc/floe/logins alice",
);

const ADD_TOKEN: Example = Example::new(
    "Make a token for a machine that reads the cache for 90 days",
    "floe serve auth add-token --auth-file /etc/floe/logins --expires 90d builder",
);

const REMOVE: Example = Example::new(
    "Remove a login; the server must then read the file again, at SIGHUP",
    "floe serve auth remove --auth-file /etc/floe/logins alice",
);
