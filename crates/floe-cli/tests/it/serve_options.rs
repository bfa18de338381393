//! Options of `floe serve` and of floe under the name `nix-serve`: errors, warnings and `--check`.
//! None of these commands serves requests.

mod configuration_file;
mod logs;
mod process;
mod running_server;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{Scratch, corpus, run, scratch};

use crate::support::floe;

/// Returns a command without environment variables that name stores or keys.
pub(crate) fn serve(args: &[&str]) -> Command {
    let mut command = floe(args);
    for name in [
        "NIX_REMOTE",
        "NIX_STORE_DIR",
        "NIX_STATE_DIR",
        "NIX_LOG_DIR",
        "NIX_SECRET_KEY_FILE",
        "CONFIG_FILE",
        "SIGN_KEY_PATHS",
        "SIGN_KEY_PATH",
        "CREDENTIALS_DIRECTORY",
    ] {
        command.env_remove(name);
    }
    command
}

/// Creates a key with this name in a file with this mode.
pub(crate) fn key_file(dir: &Scratch, name: &str, mode: u32) -> PathBuf {
    let file = dir.join(name);
    let key = run(&mut floe(["key", "generate", name])).expect(0).stdout;
    fs::write(&file, key).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    file
}

/// Returns `floe serve --check` for a store.
fn check(store: &Path) -> Command {
    let mut command = serve(&["serve", "--check", "--port", "0", "--host", "127.0.0.1"]);
    command.arg("--store").arg(store);
    command
}

#[test]
fn invalid_options_exit_with_2_and_are_named() {
    for (args, part) in [
        (&["serve", "--listen", "5000"][..], "HOST:PORT"),
        (&["serve", "--listen", ":443:ssl"], "--tls-cert"),
        (&["serve", "--store", "https://c"], "https://c"),
        (&["serve", "--store", "unix:///s"], "--store"),
        (&["serve", "--compress", "cached"], "--compressed-cache"),
        (
            &["serve", "--compressed-cache-size", "5G"],
            "--compressed-cache-size 5G: there is no",
        ),
        (&["serve", "--timeout", "0"], "--timeout"),
        (
            &["serve", "--max-header-size", "100"],
            "--max-header-size 16K",
        ),
        (&["nix-serve", "--wrokers", "5"], "--wrokers"),
        (&["nix-serve", "--listen", ":443:ssl"], "--ssl-cert"),
        (&["nix-serve", "--enable-ssl"], "--ssl-cert"),
        (&["nix-serve", "--ssl-cert", "/c"], "--ssl-key"),
        (&["nix-serve", "--user", "no-such-user"], "no-such-user"),
        (&["nix-serve", "--store", "ssh://host"], "ssh://host"),
    ] {
        run(&mut serve(args)).expect(2).stderr_contains(part);
    }
}

#[test]
fn too_low_limit_of_open_files_stops_the_start() {
    let Some(corpus) = corpus("jq") else { return };
    for command in ["serve", "nix-serve"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 16; exec \"$@\"", "sh"]);
        shell.args([env!("CARGO_BIN_EXE_floe"), command, "--listen"]);
        shell.arg("127.0.0.1:0").arg("--store").arg(corpus.store());
        run(&mut shell)
            .expect(1)
            .stderr_contains("open files, but the limit is 16; raise it with ulimit -n");
    }
}

#[test]
fn symlink_named_nix_serve_runs_nix_serve() {
    let scratch = scratch();
    let link = scratch.join("nix-serve");
    symlink(env!("CARGO_BIN_EXE_floe"), &link).unwrap();
    let help = run(Command::new(&link).arg("--help")).expect(0).stdout;
    assert!(help.contains("--disable-keepalive") && help.contains("+RTS"));
    let version = run(Command::new(&link).arg("--version")).expect(0).stdout;
    assert!(version.starts_with("nix-serve (floe "), "{version}");
    let same = run(&mut serve(&["nix-serve", "--help"])).expect(0).stdout;
    assert_eq!(help, same);
}

#[test]
fn options_without_effect_are_warned_about_first() {
    let absent = "/no/such/key";
    let line = [
        "nix-serve",
        "--workers",
        "5",
        "--max-requests=9",
        "--preload-app",
        "--disable-proctitle",
        "-E",
        "deployment",
        "-I",
        "lib",
        "-MPlack",
        "-e",
        "1",
        "--app",
        "x.psgi",
        "-s",
        "Starman",
        "-L",
        "Delayed",
        "-r",
        "-R",
        "lib",
        "--no-default-middleware",
        "/share/nix-serve.psgi",
        "+RTS",
        "-N2",
        "-RTS",
    ];
    let ran = run(serve(&line).env("NIX_SECRET_KEY_FILE", absent)).expect(1);
    let warnings = ran.stderr.matches("warning: ").count();
    assert_eq!(warnings, 16, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("ignoring ").count(), warnings);
    ran.stderr_contains(absent);
}

#[test]
fn invalid_key_file_is_named_without_its_contents() {
    let scratch = scratch();
    let bad = scratch.join("bad-key");
    fs::write(&bad, "open:sesame").unwrap();
    let bad = bad.to_str().unwrap();
    for command in [
        serve(&["serve", "--secret-key-file", bad]),
        serve(&["serve", "--secret-key-file", "/no/such/bad-key"]),
    ]
    .iter_mut()
    .chain([
        serve(&["serve"]).env("NIX_SECRET_KEY_FILE", bad),
        serve(&["serve"]).env("SIGN_KEY_PATHS", format!(" {bad} ")),
        serve(&["serve"]).env("SIGN_KEY_PATH", bad),
        serve(&["nix-serve"]).env("NIX_SECRET_KEY_FILE", bad),
    ]) {
        let ran = run(command).expect(1).stderr_contains("bad-key");
        assert!(!ran.stderr.contains("sesame"), "{}", ran.stderr);
    }
}

#[test]
fn check_prints_the_effective_configuration() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let key = key_file(&scratch, "check-1", 0o600);
    let ran = run(check(&corpus.store()).arg("--secret-key-file").arg(&key)).expect(0);
    let store = corpus.store();
    for line in [
        "store /nix/store".to_owned(),
        format!("files {}/nix/store", store.display()),
        format!("database {}/nix/var/nix/db/db.sqlite", store.display()),
        format!("logs {}/nix/var/log/nix", store.display()),
        "priority 30".to_owned(),
        "compress off".to_owned(),
    ] {
        assert!(
            ran.stdout.lines().any(|it| it == line),
            "{line}: {}",
            ran.stdout
        );
    }
    assert!(ran.stdout.contains("\nkey check-1:"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("\nlisten http://127.0.0.1:"),
        "{}",
        ran.stdout
    );
    let secret = fs::read_to_string(key).unwrap();
    assert!(!ran.stdout.contains(secret.trim()));
    assert_eq!(ran.stderr, "");
}

#[test]
fn check_creates_no_file_and_names_what_it_could_not() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let check_with = |cache: &Path, log: &Path| {
        let mut command = check(&corpus.store());
        command.arg("--compressed-cache").arg(cache);
        run(command.arg("--access-log").arg(log))
    };
    let (cache, log) = (scratch.join("a/cache"), scratch.join("log"));
    let line = format!("compress cached {}\n", cache.display());
    let ran = check_with(&cache, &log).expect(0);
    assert!(ran.stdout.contains(&line), "{}", ran.stdout);
    assert!(fs::read_dir(scratch.path()).unwrap().next().is_none());

    // A cache of an earlier server stays as it is.
    fs::create_dir_all(&cache).unwrap();
    let unfinished = cache.join("temporary-1");
    fs::write(&unfinished, "").unwrap();
    check_with(&cache, &log).expect(0);
    assert!(unfinished.exists(), "the cache was changed");

    check_with(&unfinished, &log)
        .expect(1)
        .stderr_contains("cannot use the compressed NAR cache")
        .stderr_contains("temporary-1");
    check_with(&cache, &scratch.join("absent/log"))
        .expect(1)
        .stderr_contains("cannot open the access log");
}

#[test]
fn world_readable_key_causes_warning_unless_credential() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let key = key_file(&scratch, "open-1", 0o644);
    let ran = run(check(&corpus.store()).env("NIX_SECRET_KEY_FILE", &key)).expect(0);
    ran.stderr_contains("open-1")
        .stderr_contains("0644")
        .stderr_contains("warning");
    let ran = run(check(&corpus.store())
        .env("NIX_SECRET_KEY_FILE", &key)
        .env("CREDENTIALS_DIRECTORY", scratch.path()))
    .expect(0);
    assert_eq!(ran.stderr, "");
}

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let keys: Vec<PathBuf> = ["flag-1", "env-1", "file-1"]
        .iter()
        .map(|name| key_file(&scratch, name, 0o600))
        .collect();
    let real = corpus.store().join("nix/store");
    let config = scratch.join("harmonia.toml");
    let socket = scratch.join("socket");
    let text = format!(
        "bind = 'unix:{}'\npriority = 50\nworkers = 2\nmax_connection_rate = 5\n\
         enable_compression = true\nsign_key_paths = ['{}']\nreal_nix_store = '{}'\n\
         [zstd]\nlevel = 3\n",
        socket.display(),
        keys[2].display(),
        real.display()
    );
    fs::write(&config, text).unwrap();
    // If both the environment and the file name keys, all of them sign, as in harmonia.
    let mut command = serve(&["serve", "--check"]);
    command
        .env("CONFIG_FILE", &config)
        .env("SIGN_KEY_PATHS", &keys[1])
        .env("NIX_REMOTE", "daemon");
    let ran = run(&mut command).expect(0);
    let says = |part: &str| assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    says(&format!("files {}\n", real.display()));
    says("priority 50\n");
    says("compress off\n");
    says("key env-1:");
    says("key file-1:");
    says(&format!("listen unix:{}\n", socket.display()));
    assert_eq!(ran.stderr.matches("ignoring ").count(), 3, "{}", ran.stderr);
    command.args([
        "--priority",
        "7",
        "--listen",
        "127.0.0.1:0",
        "--secret-key-file",
    ]);
    let ran = run(command.arg(&keys[0])).expect(0);
    let says = |part: &str| assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    says("priority 7\n");
    says("key flag-1:");
    says("listen http://127.0.0.1:");
    for part in ["env-1", "file-1", "unix:"] {
        assert!(!ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
}

#[test]
fn unsupported_harmonia_settings_are_rejected_with_file_name() {
    let scratch = scratch();
    let config = scratch.join("harmonia.toml");
    for (text, part) in [
        ("prioritty = 3", "prioritty"),
        ("workers = 0", "workers"),
        ("nix_db_path = '/copy.sqlite'", "/copy.sqlite"),
        ("bind = '::1:5000'", "brackets"),
        ("priority = 'high'", "priority"),
    ] {
        fs::write(&config, text).unwrap();
        let ran = run(serve(&["serve", "--config"]).arg(&config)).expect(2);
        ran.stderr_contains(part).stderr_contains("harmonia.toml");
    }
    run(&mut serve(&["serve", "--config", "/no/such.toml"]))
        .expect(1)
        .stderr_contains("/no/such.toml");
}
