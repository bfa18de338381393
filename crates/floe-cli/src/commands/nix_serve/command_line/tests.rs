//! Tests of the command line of nix-serve.

use floe_server::config::{BACKLOG, PRIORITY, WRITE_TIMEOUT};

use super::*;

fn request(line: &str) -> Result<Request, UsageError> {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse(&args)
}

#[track_caller]
fn options(line: &str) -> Options {
    match request(line) {
        Ok(Request::Serve(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn refusal(line: &str) -> String {
    request(line).expect_err(line).0
}

fn tcp(host: &str, port: u16) -> Listen {
    let host = host.to_owned();
    Listen::Tcp { host, port }
}

#[test]
fn defaults_are_those_of_nix_serve() {
    let options = options("");
    assert_eq!(options.listen, [tcp("*", 5000)]);
    assert_eq!(options.backlog.unwrap_or(BACKLOG), 1024);
    assert_eq!(options.priority.unwrap_or(PRIORITY), 30);
    assert_eq!((options.store, options.path.as_str()), (None, ""));
    assert_eq!(options.log, AccessLogFormat::Combined);
    let timeout = options.timeout.unwrap_or(WRITE_TIMEOUT);
    assert_eq!(timeout, Duration::from_secs(600));
    assert!(!options.disable_keep_alive && !options.daemonize);
    assert_eq!(options.warnings, [""; 0]);
}

#[test]
fn listen_may_be_repeated_in_every_form() {
    let listen = options("-l 127.0.0.1:1 --listen :2 --listen=[::1]:3 -l /run/socket").listen;
    let socket = Listen::Unix("/run/socket".into());
    assert_eq!(
        listen,
        [tcp("127.0.0.1", 1), tcp("*", 2), tcp("::1", 3), socket]
    );
}

#[test]
fn host_port_and_socket_set_the_address() {
    assert_eq!(options("--host ::1 --port 0").listen, [tcp("::1", 0)]);
    assert_eq!(options("-o !4 -p 80").listen, [tcp("*4", 80)]);
    assert_eq!(options("-S /s").listen, [Listen::Unix("/s".into())]);
}

#[test]
fn listen_wins_over_socket_over_host_and_port() {
    let all = options("--port 1 --socket /s --listen :2");
    assert_eq!(all.listen, [tcp("*", 2)]);
    assert_eq!(all.warnings.len(), 2);
    assert!(all.warnings.iter().all(|text| text.contains("--listen")));
    let two = options("--port 1 --socket /s");
    assert_eq!(two.listen, [Listen::Unix("/s".into())]);
    assert!(two.warnings[0].starts_with("ignoring --host or --port: "));
}

#[test]
fn options_with_an_effect_are_applied() {
    let options = options(
        "--backlog 5 --store local?root=/x --priority -3 --path /cache/ --user u --group g \
         --pid /p --error-log /e --access-log /a -D --disable-keepalive",
    );
    assert_eq!((options.backlog, options.priority), (Some(5), Some(-3)));
    assert_eq!(options.store.as_deref(), Some("local?root=/x"));
    assert_eq!(options.path, "/cache");
    assert_eq!(options.user.as_deref(), Some("u"));
    assert_eq!(options.group.as_deref(), Some("g"));
    assert_eq!(options.pid.as_deref(), Some(Path::new("/p")));
    assert_eq!(options.error_log.as_deref(), Some(Path::new("/e")));
    assert_eq!(options.access_log.as_deref(), Some(Path::new("/a")));
    assert!(options.daemonize && options.disable_keep_alive);
    assert_eq!(options.warnings, [""; 0]);
}

#[test]
fn timeout_is_the_default_of_other_timeouts() {
    let all = options("--timeout 7 --read-timeout 2");
    let seconds = |number| Some(Duration::from_secs(number));
    assert_eq!(all.timeout, seconds(7));
    assert_eq!(all.keep_alive_timeout, seconds(7));
    assert_eq!(all.read_timeout, seconds(2));
    let one = options("--keepalive-timeout 1");
    assert_eq!(one.keep_alive_timeout, seconds(1));
    assert!(options("--keepalive-timeout 0").disable_keep_alive);
    // The last occurrence wins.
    let last = options("--keepalive-timeout 0 --keepalive-timeout 5");
    assert!(!last.disable_keep_alive);
}

#[test]
fn last_log_option_wins_and_normal_is_an_alias() {
    for (line, log) in [
        ("--log-format default", AccessLogFormat::Combined),
        ("--log-format=normal", AccessLogFormat::Combined),
        ("--log-format real-ip", AccessLogFormat::RealIp),
        ("--log-format debug", AccessLogFormat::Verbose),
        ("--verbose --quiet", AccessLogFormat::Quiet),
        ("--quiet --verbose", AccessLogFormat::Verbose),
    ] {
        assert_eq!(options(line).log, log, "{line}");
    }
}

#[test]
fn options_without_effect_give_one_warning_each() {
    for entry in table::entries().filter(|it| it.effect == Effect::Ignored) {
        for name in entry.names {
            let value = entry.value.map_or("", |_| " 5");
            let once = format!("{name}{value}");
            let options = options(&format!("{once} {once}"));
            let warning = format!("ignoring {name}: {}", entry.help);
            assert_eq!(options.warnings, [warning]);
        }
    }
}

#[test]
fn every_option_of_the_help_is_known() {
    for entry in table::entries().filter(|it| it.effect == Effect::Applied) {
        let value = entry.value.map_or("", |_| " 5");
        for name in &entry.names {
            if let Err(error) = request(&format!("{name}{value}")) {
                assert!(!error.0.contains("unknown option"), "{name}: {}", error.0);
            }
        }
    }
}

#[test]
fn wrapper_and_haskell_arguments_give_warnings() {
    let options = options("--preload-app /share/nix-serve.psgi +RTS -N2 -RTS --quiet");
    assert_eq!(options.log, AccessLogFormat::Quiet);
    assert_eq!(options.warnings.len(), 3);
    assert!(options.warnings[1].starts_with("ignoring /share/nix-serve.psgi"));
    assert!(options.warnings[2].starts_with("ignoring +RTS"));
}

#[test]
fn tls_needs_a_certificate_and_a_key() {
    for line in [
        "--listen :443:ssl",
        "--enable-ssl",
        "--ssl-cert /c",
        "--ssl-key=/k",
    ] {
        let message = refusal(line);
        assert!(message.contains("--ssl-key FILE"), "{line}: {message}");
    }
    for line in ["", "--listen :443:ssl", "--enable-ssl"] {
        let options = options(&format!("--ssl-cert /c --ssl-key /k {line}"));
        let files = &options.tls.unwrap().certificates[0];
        assert_eq!(files.certificate, Path::new("/c"), "{line}");
        assert_eq!(files.key, Path::new("/k"), "{line}");
    }
    assert_eq!(options("--listen :80").tls, None);
}

#[test]
fn invalid_values_are_named() {
    for (line, part) in [
        ("--port x", "--port"),
        ("--port 70000", "70000"),
        ("--timeout 0", "--timeout"),
        ("--timeout -1", "-1"),
        ("--log-format loud", "loud"),
        ("--path cache", "slash"),
        ("--pid=", "--pid"),
        ("/nix/store", "/nix/store"),
        ("--unknown", "--unknown"),
        ("--listen ::1:5", "brackets"),
    ] {
        let message = refusal(line);
        assert!(message.contains(part), "{line}: {message}");
    }
}

#[test]
fn help_and_version_win_over_other_options() {
    let printed = |line: &str| match request(line) {
        Ok(Request::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    };
    assert!(printed("--help").starts_with("Serves a Nix store"));
    assert!(printed("-p 1 -v").starts_with("nix-serve (floe "));
}
