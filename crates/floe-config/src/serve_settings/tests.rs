//! Tests of the keys and their precedence.

use std::path::Path;

use floe_format::StoreDir;
use floe_server::{Compress, Listen};
use floe_store::StoreLayout;

use super::*;
use crate::environment::tests::environment;

pub(super) fn parse(text: &str) -> ServeSettings {
    ServeSettings::parse(Path::new("floe.toml"), text).unwrap()
}

fn refusal(text: &str) -> String {
    let settings = ServeSettings::parse(Path::new("floe.toml"), text);
    settings.unwrap_err().to_string()
}

/// Returns the effective settings of a file and environment variables.
fn resolved(text: &str, variables: &[(&str, &str)]) -> ServeSettings {
    parse(text).resolve(&environment(variables)).unwrap()
}

/// Returns the keys and values of a printed file.
pub(super) fn values(text: &str) -> toml::Table {
    text.parse().unwrap()
}

fn addresses(settings: &ServeSettings) -> Vec<String> {
    let listen = settings.listen.value_or(Vec::new());
    listen.iter().map(ToString::to_string).collect()
}

const EVERY_KEY: &str = "\
listen = ['127.0.0.1:1', 'unix:/l']
socket = '/s'
metrics_listen = ':9100'
redirect_listen = ':8080'
status_browse = true
trusted_proxy = ['10.0.0.0/8', 'unix']
proxy_protocol = true
tls_cert = ['/cert', '/cert2']
tls_key = ['/key', '/key2']
tls_client_ca = '/ca'
store = '/srv'
store_dir = '/gnu/store'
secret_key_file = ['/a', '/b']
priority = -1
compress = 'always'
compressed_cache = '/c'
compressed_cache_size = '5G'
access_log = '-'
access_log_format = 'real-ip'
auth_file = '/logins'
log_format = 'json'
threads = 3
max_connections_total = 100
max_connections_per_address = 50
max_requests_per_connection = 1000
max_header_size = '8K'
max_encoders = 2
min_rate = 2048
keepalive_timeout = 2.5
read_timeout = 3
timeout = 4
";

#[test]
fn file_with_every_key_is_read() {
    let table = values(EVERY_KEY);
    for key in ServeSettings::keys() {
        let is_read = |value: &&str| {
            let text = format!("{key} = {value}");
            ServeSettings::parse(Path::new("floe.toml"), &text).is_ok()
        };
        let is_read = ["1", "'1'", "true"].iter().any(is_read);
        assert!(table.contains_key(key) || is_read, "{key}");
    }
    let settings = resolved(EVERY_KEY, &[]);
    assert_eq!(addresses(&settings), ["127.0.0.1:1", "unix:/l", "unix:/s"]);
    assert_eq!(settings.metrics_listen.value().map(Vec::len), Some(1));
    assert_eq!(settings.trusted_proxy.value().map(Vec::len), Some(2));
    let files = ["/key", "/key2"].map(PathBuf::from).to_vec();
    assert_eq!(settings.tls_key.value(), Some(&files));
    assert_eq!(settings.secret_key_files(), ["/a", "/b"].map(PathBuf::from));
    assert_eq!(settings.priority.value(), Some(&-1));
    assert_eq!(settings.compress.value(), Some(&Compress::Always));
    assert_eq!(
        settings.compressed_cache_size.value(),
        Some(&ByteSize(5 << 30))
    );
    let access_log_format = settings.access_log_format.value();
    assert_eq!(access_log_format, Some(&AccessLogFormat::RealIp));
    assert_eq!(settings.auth_file.value(), Some(&PathBuf::from("/logins")));
    assert_eq!(settings.log_format.value(), Some(&StderrFormat::Json));
    assert_eq!(settings.threads.value(), NonZeroUsize::new(3).as_ref());
    let timeout = settings.keepalive_timeout.value();
    assert_eq!(timeout, Some(&Duration::from_millis(2500)));
    let store = settings.served_store(&environment(&[])).unwrap();
    let root = Path::new("/srv");
    let store_dir = StoreDir::new("/gnu/store").unwrap();
    assert_eq!(store.layout, StoreLayout::in_root(root, store_dir));
    assert_eq!(settings.warnings(), [""; 0]);
}

#[test]
fn help_names_the_default_value() {
    let mut found = 0;
    let mut printed = resolved("compressed_cache = '/c'", &[]);
    for entry in ServeSettings::default().entries() {
        let help = entry.help.concat();
        let default = help
            .split_once("[default: ")
            .and_then(|it| it.1.split_once(']'));
        let Some((default, _)) = default else {
            continue;
        };
        // Other texts describe a default that depends on the machine.
        if entry
            .setting
            .set_words(&[default.as_bytes()], "--flag")
            .is_ok()
        {
            let mut entries = printed.entries().into_iter();
            let effective = entries.find(|it| it.key == entry.key).unwrap().setting;
            let is_part = matches!(entry.key, "host" | "port");
            let is_equal = effective.to_toml() == entry.setting.to_toml();
            assert!(is_equal || is_part, "{}: {default}", entry.key);
            found += 1;
        }
    }
    assert!(found >= 10, "{found}");
}

#[test]
fn file_with_every_key_of_harmonia_is_read() {
    let settings = resolved(
        "bind = '[::]:6000'\nworkers = 3\nmax_connection_rate = 5\nmax_connections = 10\n\
         priority = 50\nenable_compression = false\nvirtual_nix_store = '/nix/store'\n\
         real_nix_store = '/mnt/nix/store'\nnix_db_path = '/mnt/nix/var/nix/db/db.sqlite'\n\
         sign_key_paths = ['/a', '/b']\nsign_key_path = '/c'\n\
         [zstd]\nlevel = 3\nlong_distance_matching = false\nwindow_log = 20\n\
         max_ldm_encoders_per_worker = 2\n",
        &[],
    );
    assert_eq!(addresses(&settings), ["*:6000"]);
    assert_eq!(settings.threads.value(), NonZeroUsize::new(3).as_ref());
    let connections = settings.max_connections_total.value();
    assert_eq!(connections, NonZeroUsize::new(30).as_ref());
    assert_eq!(settings.priority.value(), Some(&50));
    assert_eq!(settings.compress.value(), Some(&Compress::Off));
    let keys = ["/a", "/b", "/c"].map(PathBuf::from);
    assert_eq!(settings.secret_key_files(), keys);
    assert_eq!(settings.warnings().len(), 3, "{:?}", settings.warnings());
    let store = settings.served_store(&environment(&[])).unwrap();
    let expected = StoreLayout::in_root(Path::new("/mnt"), StoreDir::default());
    assert_eq!(store.layout, expected);
}

#[test]
fn connections_without_workers_are_multiplied_with_warning() {
    let settings = parse("max_connections = 10");
    let connections = settings.max_connections_total.value();
    assert_eq!(connections, NonZeroUsize::new(40).as_ref());
    let warnings = settings.warnings().join("\n");
    assert!(
        warnings.contains("max_connections_total = 40"),
        "{warnings}"
    );
    let unset = parse("max_connections = 0");
    assert_eq!(unset.max_connections_total.value(), None);
}

#[test]
fn invalid_file_is_named_with_line_and_key() {
    for (text, reason) in [
        ("\nprioritty = 3", ":2: unknown key prioritty; use priority"),
        (
            "keepalive-timeout = 3",
            ":1: unknown key keepalive-timeout; use keepalive_timeout",
        ),
        ("[server]\n", ":1: unknown key server"),
        (
            "\n\nport = 70000",
            ":3: port: it takes a number from 0 to 65535",
        ),
        ("priority = 'high'", ":1: priority: it takes a whole number"),
        ("timeout = 0", ":1: timeout: it takes a number of seconds"),
        (
            "workers = 0",
            ":1: workers: it takes a whole number above 0",
        ),
        ("listen = '5000'", ":1: listen: cannot listen on"),
        ("bind = '::1:5000'", "brackets"),
        ("threads = 1\nthreads = 2", ":2: threads: duplicate key"),
        ("threads =", ":1: "),
        (
            "nix_db_path = '/srv/copy.sqlite'",
            ":1: nix_db_path: /srv/copy.sqlite does not end in db/db.sqlite",
        ),
        (
            "virtual_nix_store = 'x'",
            ":1: virtual_nix_store: cannot use \"x\"",
        ),
    ] {
        let message = refusal(text);
        let start = "cannot use the configuration file floe.toml:";
        assert!(message.starts_with(start), "{text}: {message}");
        assert!(message.contains(reason), "{text}: {message}");
        assert!(!message.contains('\n'), "{text}: {message}");
    }
}

#[test]
fn two_keys_for_one_setting_are_an_error_with_both() {
    for (a, b) in [
        ("bind = ':1'", "listen = ':1'"),
        ("bind = ':1'", "port = 1"),
        ("listen = ':1'", "host = '::1'"),
        ("workers = 1", "threads = 1"),
        ("max_connections = 1", "max_connections_total = 4"),
        ("enable_compression = true", "compress = 'off'"),
        ("store = 'auto'", "root = '/mnt'"),
        ("real_nix_store = '/n'", "store = 'auto'"),
        (
            "virtual_nix_store = '/nix/store'",
            "store_dir = '/nix/store'",
        ),
        ("sign_key_paths = ['/a']", "secret_key_file = '/a'"),
        ("sign_key_path = '/a'", "secret_key_file = '/a'"),
    ] {
        let message = refusal(&format!("{a}\n{b}\n"));
        for key in [a, b].map(|line| line.split(' ').next().unwrap()) {
            assert!(message.contains(key), "{a}, {b}: {message}");
        }
        let places = ["floe.toml:1", "floe.toml:2"];
        let has_places = places.iter().all(|place| message.contains(place));
        assert!(has_places, "{a}, {b}: {message}");
    }
    let mixed = parse("bind = ':1'\nsocket = '/s'\nthreads = 2\nmax_connections = 5\n");
    let connections = mixed.max_connections_total.value();
    assert_eq!(connections, NonZeroUsize::new(10).as_ref());
}

#[test]
fn address_flags_replace_the_addresses_of_the_file() {
    let listen = |settings: &mut ServeSettings| {
        settings
            .listen
            .set_flag("--listen", Some(vec![Listen::Unix("/f".into())]));
    };
    let socket =
        |settings: &mut ServeSettings| settings.socket.set_flag("--socket", Some("/f".into()));
    let port = |settings: &mut ServeSettings| settings.port.set_flag("--port", Some(80));
    type Flag<'a> = &'a dyn Fn(&mut ServeSettings);
    let cases: [(&str, Flag<'_>, &[&str]); 7] = [
        ("bind = ':1'", &listen, &["unix:/f"]),
        ("port = 1", &listen, &["unix:/f"]),
        ("listen = ':1'\nsocket = '/s'", &socket, &["unix:/f"]),
        ("listen = ':1'\nsocket = '/s'", &port, &["127.0.0.1:80"]),
        ("host = '::1'\nport = 1", &port, &["[::1]:80"]),
        (
            "bind = 'unix:/b'\nsocket = '/s'",
            &|_| {},
            &["unix:/b", "unix:/s"],
        ),
        (
            "host = '!6'\nsocket = '/s'",
            &|_| {},
            &["unix:/s", "*6:5000"],
        ),
    ];
    for (text, flag, expected) in cases {
        let mut settings = parse(text);
        flag(&mut settings);
        let settings = settings.resolve(&environment(&[])).unwrap();
        assert_eq!(addresses(&settings), expected, "{text}");
    }
}

#[test]
fn environment_overrides_file_except_keys_of_harmonia() {
    let files = |text: &str, variables: &[(&str, &str)]| {
        let files = resolved(text, variables).secret_key_files();
        let files = files.iter().map(|file| file.display().to_string());
        files.collect::<Vec<_>>().join(" ")
    };
    let keys = [
        ("NIX_SECRET_KEY_FILE", "/n"),
        ("SIGN_KEY_PATHS", " /p  /a "),
    ];
    assert_eq!(files("secret_key_file = ['/a', '/b']", &keys), "/n /p /a");
    assert_eq!(files("secret_key_file = '/a'", &[]), "/a");
    assert_eq!(files("sign_key_paths = ['/a', '/b']", &keys), "/a /b /n /p");

    let real = |text: &str, variables: &[(&str, &str)]| {
        let store = resolved(text, variables).served_store(&environment(variables));
        store.unwrap().layout.real_store_dir.display().to_string()
    };
    let remote = [("NIX_REMOTE", "/env")];
    assert_eq!(real("root = '/mnt'", &[]), "/mnt/nix/store");
    assert_eq!(real("root = '/mnt'", &remote), "/env/nix/store");
    assert_eq!(real("store = '/mnt'", &remote), "/env/nix/store");
    assert_eq!(
        real("real_nix_store = '/mnt/nix/store'", &remote),
        "/mnt/nix/store"
    );
    let variable = [("NIX_STORE_DIR", "/gnu/store")];
    for text in ["store_dir = '/x/store'", "virtual_nix_store = '/x/store'"] {
        assert_eq!(real(text, &[]), "/x/store");
        assert_eq!(real(text, &variable), "/gnu/store");
    }
}

#[test]
fn flags_override_the_store_of_environment_and_file() {
    for text in ["store = '/x'", "root = '/x'", "real_nix_store = '/x'", ""] {
        let environment = environment(&[("NIX_REMOTE", "/env")]);
        let mut settings = parse(text);
        settings.root.set_flag("--root", Some("/mnt".into()));
        let settings = settings.resolve(&environment).unwrap();
        let store = settings.served_store(&environment).unwrap();
        let expected = StoreLayout::in_root(Path::new("/mnt"), StoreDir::default());
        assert_eq!(store.layout, expected, "{text}");
    }
}

#[test]
fn store_that_cannot_be_served_is_named_with_line() {
    for (text, part) in [
        (
            "\nstore = 'https://c'",
            "floe.toml:2: cannot serve https://c",
        ),
        (
            "root = 'https://c'",
            "floe.toml:1: cannot use --root https://c",
        ),
        (
            "\nstore_dir = 'x'",
            "floe.toml:2: --store-dir: cannot use \"x\"",
        ),
    ] {
        let environment = environment(&[]);
        let error = resolved(text, &[]).served_store(&environment).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        let mut by_flag = parse(text);
        by_flag
            .store
            .set_flag("--store", Some("https://flag".into()));
        let by_flag = by_flag.resolve(&environment).unwrap();
        let error = by_flag.served_store(&environment).unwrap_err();
        let is_flag = error.to_string().starts_with("cannot serve https://flag");
        assert!(is_flag || text.contains("store_dir"), "{error}");
    }
}

#[test]
fn state_dir_follows_store_or_database_path_of_harmonia() {
    let layout = |text: &str, store_dir: Option<&str>| {
        let mut settings = parse(text);
        settings
            .store_dir
            .set_flag("--store-dir", store_dir.map(str::to_owned));
        let settings = settings.resolve(&environment(&[])).unwrap();
        settings.served_store(&environment(&[])).unwrap().layout
    };
    let real = layout("real_nix_store = '/mnt/nix/store'", Some("/gnu/store"));
    assert_eq!(real.store_dir.as_str(), "/gnu/store");
    assert_eq!(real.state_dir, Path::new("/mnt/nix/var/nix"));
    let database = layout("nix_db_path = '/else/where/db/db.sqlite'", None);
    assert_eq!(database.state_dir, Path::new("/else/where"));
    assert_eq!(database.real_store_dir, Path::new("/nix/store"));
}

#[test]
fn compression_is_off_without_setting_and_cache() {
    use Compress::{Always, Cached, Off};
    for (text, expected) in [
        ("", Off),
        ("compressed_cache = '/c'", Cached),
        ("enable_compression = true", Off),
        ("enable_compression = true\ncompressed_cache = '/c'", Cached),
        ("enable_compression = false\ncompressed_cache = '/c'", Off),
        ("compress = 'off'\ncompressed_cache = '/c'", Off),
        ("compress = 'always'", Always),
    ] {
        let settings = resolved(text, &[]);
        assert_eq!(settings.compress.value(), Some(&expected), "{text}");
        let is_ignored = text == "enable_compression = true";
        assert_eq!(settings.warnings().len(), usize::from(is_ignored), "{text}");
    }
    let mut flag = parse("enable_compression = false");
    flag.compress.set_flag("--compress", Some(Always));
    let flag = flag.resolve(&environment(&[])).unwrap();
    assert_eq!(flag.compress.value(), Some(&Always));
}

#[test]
fn settings_of_absent_compressed_cache_are_errors() {
    for (text, given) in [
        (
            "compress = 'cached'",
            "compress = \"cached\" in floe.toml:1",
        ),
        (
            "compressed_cache_size = '5G'",
            "compressed_cache_size = \"5G\" in floe.toml:1",
        ),
    ] {
        let error = parse(text).resolve(&environment(&[])).unwrap_err();
        let expected = format!(
            "cannot use {given}: there is no compressed NAR cache; add --compressed-cache DIR"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn operating_guide_lists_every_key() {
    let guide = include_str!("../../../../docs/operating.md");
    for key in ServeSettings::keys() {
        assert!(guide.contains(&format!("| `{key}` |")), "{key}");
    }
    let guide = include_str!("../../../../docs/moving-from-nix-serve.md");
    let mut settings = ServeSettings::default();
    for entry in settings.entries() {
        let is_listed = entry.option.kind != KeyKind::Harmonia || guide.contains(entry.key);
        assert!(is_listed, "{}", entry.key);
    }
}
