//! The configuration file of `floe serve`, and `--print-config`.

use std::fs;
use std::path::Path;

use floe_testkit::{corpus, run, scratch};

use super::{key_file, serve};

#[test]
fn file_with_every_kind_of_key_is_served_and_checked() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let key = key_file(&scratch, "file-1", 0o600);
    let (config, cache) = (scratch.join("floe.toml"), scratch.join("cache"));
    let (socket, log) = (scratch.join("socket"), scratch.join("log"));
    let text = format!(
        "listen = '127.0.0.1:0'\nsocket = '{}'\nroot = '{}'\nsecret_key_file = '{}'\n\
         priority = 7\ncompressed_cache = '{}'\ncompressed_cache_size = '1G'\naccess_log = '{}'\n\
         access_log_format = 'real-ip'\nworkers = 2\nmax_connections_total = 100\n\
         keepalive_timeout = 1.5\n",
        socket.display(),
        corpus.store().display(),
        key.display(),
        cache.display(),
        log.display(),
    );
    fs::write(&config, text).unwrap();
    let before = fs::read_dir(scratch.path()).unwrap().count();
    let ran = run(serve(&["serve", "--check", "--config"]).arg(&config)).expect(0);
    for part in [
        format!("files {}/nix/store\n", corpus.store().display()),
        "priority 7\n".to_owned(),
        "key file-1:".to_owned(),
        format!("compress cached {}\n", cache.display()),
        "listen http://127.0.0.1:".to_owned(),
        format!("listen unix:{}\n", socket.display()),
    ] {
        assert!(ran.stdout.contains(&part), "{part}: {}", ran.stdout);
    }
    assert_eq!(ran.stderr, "");
    let after = fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(after, before, "--check created a file");
}

#[test]
fn invalid_file_exits_with_2_and_names_key_and_line() {
    let scratch = scratch();
    let config = scratch.join("floe.toml");
    for (text, part) in [
        (
            "\nkeepalive-timeout = 3",
            "toml:2: unknown key keepalive-timeout; use keepalive_timeout",
        ),
        (
            "port = 'http'",
            "toml:1: port: it takes a number from 0 to 65535",
        ),
        ("port = 80\nbind = ':80'", "bind and port"),
        ("compress = 'cached'", "add --compressed-cache"),
        ("root = 'https://c'", "toml:1: cannot use --root"),
        (
            "store = 'https://user:secret@c'",
            "toml:1: cannot serve https://",
        ),
        ("priority = ", "toml:1: "),
    ] {
        fs::write(&config, text).unwrap();
        for mode in ["--check", "--print-config"] {
            let ran = run(serve(&["serve", mode]).env("CONFIG_FILE", &config)).expect(2);
            let ran = ran.stderr_contains(part);
            assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
            assert_eq!(ran.stdout, "", "{text}");
        }
    }
}

#[test]
fn printed_config_is_accepted_and_prints_the_same() {
    let scratch = scratch();
    let key = key_file(&scratch, "env-1", 0o600);
    let (config, printed) = (scratch.join("h.toml"), scratch.join("printed.toml"));
    fs::write(&config, "bind = '[::]:81'\npriority = 50\nworkers = 2\n").unwrap();
    let print = |args: &[&str]| {
        let mut command = serve(&["serve", "--print-config"]);
        command.args(args).env("NIX_SECRET_KEY_FILE", &key);
        run(&mut command).expect(0)
    };
    let path = config.to_str().unwrap();
    let first = print(&["--config", path, "--priority", "9", "--store", "local"]).stdout;
    for (line, origin) in [
        ("listen = [\"*:81\"]", format!("# file {path}:1")),
        ("priority = 9", "# flag --priority".to_owned()),
        ("threads = 2", format!("# file {path}:3")),
        ("timeout = 600", "# default".to_owned()),
    ] {
        let has_origin = |it: &str| it.starts_with(line) && it.ends_with(&origin);
        assert!(first.lines().any(has_origin), "{line}: {first}");
    }
    assert!(
        first.contains("# environment variable NIX_SECRET_KEY_FILE"),
        "{first}"
    );
    let secret = fs::read_to_string(&key).unwrap();
    assert!(!first.contains(secret.trim().split_once(':').unwrap().1));

    fs::write(&printed, &first).unwrap();
    let second = print(&["--config", printed.to_str().unwrap()]).stdout;
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split("  #").next().unwrap());
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    assert_eq!(values(&second), values(&first));
}

#[test]
fn log_format_of_file_applies_unless_a_flag_is_given() {
    let scratch = scratch();
    let config = scratch.join("floe.toml");
    fs::write(&config, "log_format = 'json'\ncompress = 'cached'\n").unwrap();
    for (args, start) in [
        (&["serve", "--check"][..], "{"),
        (&["serve", "--check", "--log-format", "text"], "floe: "),
        (&["--log-format", "text", "serve", "--check"], "floe: "),
    ] {
        let ran = run(serve(args).arg("--config").arg(&config)).expect(2);
        let ran = ran.stderr_contains("there is no compressed NAR cache");
        assert!(ran.stderr.starts_with(start), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn path_that_is_not_utf8_cannot_be_printed() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let path = OsStr::from_bytes(b"/srv/\xff");
    let mut command = serve(&["serve", "--print-config", "--access-log"]);
    run(command.arg(path))
        .expect(2)
        .stderr_contains("cannot print access_log: the path is not UTF-8");
}

#[test]
fn empty_variable_for_the_file_counts_as_unset() {
    let mut command = serve(&["serve", "--print-config"]);
    let ran = run(command.env("CONFIG_FILE", "")).expect(0);
    assert!(ran.stdout.contains("127.0.0.1:5000"), "{}", ran.stdout);
}

#[test]
fn configuration_file_must_be_a_regular_file() {
    let scratch = scratch();
    let pipe = scratch.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    for file in [pipe.as_path(), Path::new("/dev/zero")] {
        let ran = run(serve(&["serve", "--check", "--config"]).arg(file)).expect(1);
        ran.stderr_contains("not a regular file");
    }
}
