//! The examples of every command: at the end of its `--help`, and in its manual page.

/// An example of one or more commands.
#[derive(Debug)]
pub(crate) struct Example {
    /// The manual pages with this example. The first one is the page of the command itself.
    pages: &'static [&'static str],
    /// The task that the example does, as a request.
    pub(crate) purpose: &'static str,
    /// The command line, as a shell takes it.
    pub(crate) line: &'static str,
}

/// Returns the examples on a manual page, such as `floe-install`.
pub(crate) fn of_page(page: &str) -> impl Iterator<Item = &'static Example> {
    EXAMPLES.iter().filter(move |it| it.pages.contains(&page))
}

/// Returns the examples of a manual page as the last part of `--help`.
pub(crate) fn help(page: &str) -> String {
    let examples = of_page(page).map(|it| format!("\n  {}:\n      {}", it.purpose, it.line));
    format!("Examples:{}", examples.collect::<String>())
}

/// All examples, in the order of their pages.
const EXAMPLES: &[Example] = &[
    Example {
        pages: &["floe-install", "floe"],
        purpose: "Install a program from cache.nixos.org into a store of your own",
        line: "floe install --root ~/nix-root /nix/store/HASH-hello-2.12.1",
    },
    Example {
        pages: &["floe-install"],
        purpose: "Install from another cache, and keep the closure from the garbage collector",
        line: "floe install --from https://cache.example.org --trusted-public-keys NAME:KEY \
               -o result HASH",
    },
    Example {
        pages: &["floe-install"],
        purpose: "Show what would be fetched and written",
        line: "floe install --dry-run --root ~/nix-root HASH",
    },
    Example {
        pages: &["floe-run", "floe"],
        purpose: "Run a program of a store of your own, and install it first if it is missing",
        line: "floe run --root ~/nix-root /nix/store/HASH-hello-2.12.1 -- --greeting=hi",
    },
    Example {
        pages: &["floe-run"],
        purpose: "Run another program of the path to which a link leads",
        line: "floe run --root ~/nix-root --program jq ./result -- . file.json",
    },
    Example {
        pages: &["floe-shell"],
        purpose: "Run a command that finds the programs of two paths",
        line: "floe shell --root ~/nix-root HASH1 HASH2 -- make",
    },
    Example {
        pages: &["floe-list", "floe"],
        purpose: "List what links and profiles keep in a store of your own",
        line: "floe list --root ~/nix-root",
    },
    Example {
        pages: &["floe-uninstall"],
        purpose: "Remove the link or the profile that keeps a program",
        line: "floe uninstall --root ~/nix-root hello",
    },
    Example {
        pages: &["floe-roots"],
        purpose: "Show what keeps a path from the garbage collector",
        line: "floe roots --why /nix/store/HASH-NAME",
    },
    Example {
        pages: &["floe-profile", "floe-profile-list"],
        purpose: "List the generations of a profile",
        line: "floe profile list --profile /nix/var/nix/profiles/system",
    },
    Example {
        pages: &["floe-profile-history"],
        purpose: "Show what each generation of the default profile changed",
        line: "floe profile history",
    },
    Example {
        pages: &["floe-profile-diff-closures"],
        purpose: "Show which versions each generation of the system changed",
        line: "floe profile diff-closures --profile /nix/var/nix/profiles/system",
    },
    Example {
        pages: &["floe-profile-rollback"],
        purpose: "Switch back to the generation before",
        line: "floe profile rollback --profile ./profile",
    },
    Example {
        pages: &["floe-profile-switch"],
        purpose: "Switch to generation 3",
        line: "floe profile switch --profile ./profile 3",
    },
    Example {
        pages: &["floe-profile-wipe-history"],
        purpose: "Delete the generations that were not in use in the last 30 days",
        line: "floe profile wipe-history --older-than 30d",
    },
    Example {
        pages: &["floe-profile-delete-generations"],
        purpose: "Keep the current generation and the four before it",
        line: "floe profile delete-generations +5",
    },
    Example {
        pages: &["floe-copy"],
        purpose: "Copy paths to a cache as a build prints them",
        line: "make-paths | floe copy --to file:///srv/cache --stdin --follow",
    },
    Example {
        pages: &["floe-copy", "floe"],
        purpose: "Make a signed binary cache of the store of this machine",
        line: "floe copy --to 'file:///srv/cache?compression=zstd&secret-key=cache.key' --all",
    },
    Example {
        pages: &["floe-copy", "floe"],
        purpose: "Copy a closure to another machine with Nix, over SSH",
        line: "floe copy --to ssh-ng://root@HOST ./result",
    },
    Example {
        pages: &["floe-nix-copy-closure"],
        purpose: "Copy the result of a build to another machine",
        line: "floe nix-copy-closure --to root@HOST ./result",
    },
    Example {
        pages: &["floe-copy"],
        purpose: "Copy a closure from a store of another root directory, without signatures",
        line: "floe copy --from /mnt --no-check-sigs /nix/store/HASH-NAME",
    },
    Example {
        pages: &["floe-push", "floe"],
        purpose: "Push the result of a build to a bucket of S3, signed",
        line: "floe push --to 's3://BUCKET?region=eu-west-1' --secret-key-file cache.key ./result",
    },
    Example {
        pages: &["floe-push"],
        purpose: "Push paths to a web server as a build prints them",
        line: "make-paths | floe push --to https://cache.example.org --stdin --follow",
    },
    Example {
        pages: &["floe-gc", "floe"],
        purpose: "Show what a collection would delete in a store of your own",
        line: "floe gc --dry-run --root ~/nix-root",
    },
    Example {
        pages: &["floe-gc"],
        purpose: "Delete generations that were not in use for 30 days, then paths without a root",
        line: "floe gc --delete-older-than 30d",
    },
    Example {
        pages: &["floe-gc"],
        purpose: "Delete paths until the disk has 50 GiB of free space",
        line: "floe gc --free 50G",
    },
    Example {
        pages: &["floe-delete"],
        purpose: "Delete a path and all of its closure that nothing else keeps",
        line: "floe delete --recursive --skip-alive /nix/store/HASH-hello-2.12.1",
    },
    Example {
        pages: &["floe-optimise"],
        purpose: "Show how much space equal files would save",
        line: "floe optimise --dry-run --root ~/nix-root",
    },
    Example {
        pages: &["floe-verify"],
        purpose: "Check all paths of a store",
        line: "floe verify --root ~/nix-root",
    },
    Example {
        pages: &["floe-verify"],
        purpose: "Fetch damaged paths again",
        line: "floe verify --root ~/nix-root --repair --from https://cache.nixos.org",
    },
    Example {
        pages: &["floe-info"],
        purpose: "Ask a cache for a path",
        line: "floe info --from https://cache.nixos.org HASH",
    },
    Example {
        pages: &["floe-info"],
        purpose: "Print the closure of a valid path as JSON",
        line: "floe info --recursive --json /nix/store/HASH-NAME",
    },
    Example {
        pages: &["floe-config"],
        purpose: "Show which caches and keys floe uses, and where they are set",
        line: "floe config substituters trusted-public-keys",
    },
    Example {
        pages: &["floe-serve", "floe"],
        purpose: "Serve the store of this machine as a signed binary cache",
        line: "floe serve --listen 127.0.0.1:5000 --secret-key-file cache.key",
    },
    Example {
        pages: &["floe-serve"],
        purpose: "Serve on all addresses with TLS",
        line: "floe serve --listen :443 --tls-cert fullchain.pem --tls-key privkey.pem",
    },
    Example {
        pages: &["floe-serve"],
        purpose: "Test the options, and print what would be served",
        line: "floe serve --secret-key-file cache.key --check",
    },
    Example {
        pages: &["floe-serve"],
        purpose: "Write a configuration file with the effective settings, and serve with it",
        line: "floe serve --port 80 --print-config > floe.toml && floe serve --config floe.toml",
    },
    Example {
        pages: &["floe-serve"],
        purpose: "Serve only clients with a login, which floe serve auth makes",
        line: "floe serve --auth-file /etc/floe/logins",
    },
    Example {
        pages: &["floe-serve-auth-add-user", "floe-serve-auth"],
        purpose: "Add a user, and type the password",
        line: "floe serve auth add-user --auth-file /etc/floe/logins alice",
    },
    Example {
        pages: &["floe-serve-auth-add-token", "floe-serve-auth"],
        purpose: "Make a token for a machine that reads the cache for 90 days",
        line: "floe serve auth add-token --auth-file /etc/floe/logins --expires 90d builder",
    },
    Example {
        pages: &["floe-serve-auth-remove", "floe-serve-auth"],
        purpose: "Remove a login; the server must then read the file again, at SIGHUP",
        line: "floe serve auth remove --auth-file /etc/floe/logins alice",
    },
    Example {
        pages: &["floe-serve-auth-list"],
        purpose: "Show the logins, without passwords and tokens",
        line: "floe serve auth list --auth-file /etc/floe/logins",
    },
    Example {
        pages: &["nix-serve"],
        purpose: "Serve the store of this machine on port 8080 of all addresses",
        line: "nix-serve --port 8080",
    },
    Example {
        pages: &["nix-serve"],
        purpose: "Sign all paths with a key, and serve on a Unix socket in the background",
        line: "NIX_SECRET_KEY_FILE=cache.key nix-serve --socket /run/cache.sock --daemonize",
    },
    Example {
        pages: &["floe-key-generate", "floe-key"],
        purpose: "Make a secret key that only you can read",
        line: "(umask 077; floe key generate cache.example.org-1 > cache.key)",
    },
    Example {
        pages: &["floe-key-public", "floe-key"],
        purpose: "Print the public key, which the clients of the cache need",
        line: "floe key public < cache.key",
    },
    Example {
        pages: &["floe-bench-copy", "floe-bench"],
        purpose: "Compare floe with Nix for a closure of cache.nixos.org",
        line: "floe bench copy --path HASH --scenario cache-tmpfs=https://cache.nixos.org",
    },
    Example {
        pages: &["floe-completions"],
        purpose: "Complete commands and options in this bash",
        line: "source <(floe completions bash)",
    },
    Example {
        pages: &["floe-man"],
        purpose: "Read the manual page of floe",
        line: "floe man | man -l -",
    },
    Example {
        pages: &["floe-man"],
        purpose: "Write the pages of all commands where man finds them",
        line: "floe man ~/.local/share/man/man1",
    },
    Example {
        pages: &["floe-demo", "floe"],
        purpose: "Show floe at work, without a network and without Nix",
        line: "floe demo",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    use crate::args::Cli;

    #[test]
    fn example_lines_parse_and_belong_to_their_page() {
        for Example { pages, line, .. } in EXAMPLES.iter().filter(|it| it.pages != ["nix-serve"]) {
            let command = &line[line.find("floe ").unwrap()..];
            let command = command.split(['|', '<', '>', ')']).next().unwrap();
            let words = shell_words::split(command).unwrap();
            let parsed = Cli::try_parse_from(&words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            assert!(words.join("-").starts_with(pages[0]), "{line}: {pages:?}");
        }
    }

    #[test]
    fn help_lines_fit_on_a_terminal() {
        for page in EXAMPLES.iter().flat_map(|it| it.pages) {
            for line in help(page).lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }
}
