//! The manual pages of `floe serve` and of related commands.

use crate::page::{Example, Page, STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-serve",
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
        examples: &[ADD_USER, ADD_TOKEN, REMOVE],
        files: &[],
        see_also: &["floe-serve(1)", "htpasswd(1)"],
    },
    Page {
        name: "floe-serve-auth-add-user",
        examples: &[ADD_USER],
        files: &[],
        see_also: &["floe-serve-auth(1)"],
    },
    Page {
        name: "floe-serve-auth-add-token",
        examples: &[ADD_TOKEN],
        files: &[],
        see_also: &["floe-serve-auth(1)"],
    },
    Page {
        name: "floe-serve-auth-remove",
        examples: &[REMOVE],
        files: &[],
        see_also: &["floe-serve-auth(1)"],
    },
    Page {
        name: "floe-serve-auth-list",
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
