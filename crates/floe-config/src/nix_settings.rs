//! The names of the settings of Nix that floe does not need, mostly about builds and evaluation.
//!
//! A setting that neither this table nor floe knows is probably misspelt, and gives a warning.

/// Whether a name is a setting of Nix that floe ignores, perhaps with `extra-` before it.
pub(crate) fn is_ignored_setting(name: &str) -> bool {
    let is_listed = |name: &str| IGNORED_SETTINGS.binary_search(&name).is_ok();
    is_listed(name) || name.strip_prefix("extra-").is_some_and(is_listed)
}

/// The settings of Nix 2.8 to 2.34 on Linux and macOS with their aliases, sorted, and `eval-cores`
/// and `lazy-trees` of Determinate Nix.
const IGNORED_SETTINGS: [&str; 124] = [
    "abort-on-warn",
    "accept-flake-config",
    "access-tokens",
    "allow-dirty",
    "allow-dirty-locks",
    "allow-import-from-derivation",
    "allow-new-privileges",
    "allow-unsafe-native-code-during-evaluation",
    "allowed-impure-host-deps",
    "allowed-uris",
    "always-allow-substitutes",
    "auto-allocate-uids",
    "bash-prompt",
    "bash-prompt-prefix",
    "bash-prompt-suffix",
    "build-chroot-dirs",
    "build-compress-log",
    "build-cores",
    "build-dir",
    "build-extra-platforms",
    "build-fallback",
    "build-hook",
    "build-impersonate-linux-26",
    "build-keep-log",
    "build-max-jobs",
    "build-max-log-size",
    "build-max-silent-time",
    "build-poll-interval",
    "build-repeat",
    "build-sandbox-paths",
    "build-timeout",
    "build-use-chroot",
    "build-use-sandbox",
    "build-use-substitutes",
    "builders",
    "builders-use-substitutes",
    "commit-lock-file-summary",
    "commit-lockfile-summary",
    "compress-build-log",
    "cores",
    "darwin-log-sandbox-violations",
    "debugger-on-trace",
    "debugger-on-warn",
    "diff-hook",
    "download-buffer-size",
    "download-speed",
    "enforce-determinism",
    "env-keep-derivations",
    "eval-attrset-update-layer-rhs-threshold",
    "eval-cache",
    "eval-cores",
    "eval-profile-file",
    "eval-profiler",
    "eval-profiler-frequency",
    "eval-system",
    "experimental-features",
    "external-builders",
    "extra-platforms",
    "fallback",
    "filter-syscalls",
    "flake-registry",
    "gc-reserved-space",
    "hashed-mirrors",
    "id-count",
    "ignore-try",
    "ignored-acls",
    "impersonate-linux-26",
    "impure-env",
    "json-log-path",
    "keep-build-log",
    "keep-env-derivations",
    "keep-failed",
    "keep-going",
    "lazy-trees",
    "lint-absolute-path-literals",
    "lint-short-path-literals",
    "lint-url-literals",
    "log-lines",
    "max-build-log-size",
    "max-call-depth",
    "max-free",
    "max-jobs",
    "max-silent-time",
    "max-substitution-jobs",
    "min-free",
    "min-free-check-interval",
    "nar-buffer-size",
    "nix-path",
    "nix-shell-always-looks-for-shell-nix",
    "nix-shell-shebang-arguments-relative-to-script",
    "plugin-files",
    "post-build-hook",
    "pre-build-hook",
    "preallocate-contents",
    "print-missing",
    "pure-eval",
    "repeat",
    "require-drop-supplementary-groups",
    "restrict-eval",
    "run-diff-hook",
    "sandbox",
    "sandbox-build-dir",
    "sandbox-dev-shm-size",
    "sandbox-fallback",
    "sandbox-paths",
    "show-trace",
    "start-id",
    "substitute",
    "substitution-max-jobs",
    "system",
    "system-features",
    "tarball-ttl",
    "timeout",
    "trace-function-calls",
    "trace-import-from-derivation",
    "trace-verbose",
    "trust-tarballs-from-git-forges",
    "upgrade-nix-store-path-url",
    "use-case-hack",
    "use-cgroups",
    "use-registries",
    "warn-dirty",
    "warn-large-path-threshold",
    "warn-short-path-literals",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_settings_are_sorted_and_found() {
        assert!(IGNORED_SETTINGS.is_sorted());
        for name in [
            "max-jobs",
            "extra-platforms",
            "extra-sandbox-paths",
            "warn-dirty",
        ] {
            assert!(is_ignored_setting(name), "{name}");
        }
        for name in ["", "extra-", "max-job", "http2"] {
            assert!(!is_ignored_setting(name), "{name}");
        }
    }
}
