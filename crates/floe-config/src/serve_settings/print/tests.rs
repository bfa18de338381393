//! Tests of the printed file.

use std::path::Path;

use proptest::prelude::*;

use crate::environment::tests::environment;
use crate::serve_settings::ServeSettings;
use crate::serve_settings::tests::{parse, values};

fn printed(settings: ServeSettings, variables: &[(&str, &str)]) -> String {
    settings.to_toml(&environment(variables)).unwrap()
}

#[test]
fn printed_line_names_origin_of_its_value() {
    let variables = [("SIGN_KEY_PATH", "/env"), ("NIX_STATE_DIR", "/state")];
    let mut settings = parse("priority = 7\nsign_key_paths = ['/file']\n");
    settings.port.set_flag("--port", Some(80));
    let settings = settings.resolve(&environment(&variables)).unwrap();
    let text = printed(settings, &variables);
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "priority = 7 # file floe.toml:1",
        "sign_key_paths = [\"/file\", \"/env\"] # file floe.toml:2 and environment variable \
         SIGN_KEY_PATH",
        "store = \"auto\" # default",
        "# compressed_cache # not set",
        "# NIX_STATE_DIR=/state # environment variable",
        "timeout = 600 # default",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line}:\n{text}");
    }
    assert!(
        text.contains(":80\"]") && text.contains("# flag --port and default"),
        "{text}"
    );
}

#[test]
fn name_of_file_cannot_leave_its_comment() {
    let settings = ServeSettings::parse(Path::new("a\nthreads = 9"), "priority = 7").unwrap();
    let settings = settings.resolve(&environment(&[])).unwrap();
    let text = printed(settings, &[]);
    assert!(text.contains("# file a\\nthreads = 9:1"), "{text}");
}

/// Returns any subset of lines that may stand in one file.
fn files() -> impl Strategy<Value = String> {
    let addresses = prop_oneof![
        Just("listen = ['[::1]:80', ':81', 'unix:/a\"b\\\\c']\n"),
        Just("bind = '[::]:6000'\nsocket = '/s'\n"),
        Just("host = '*4'\nport = 0\n"),
        Just("port = 81\n"),
        Just(""),
    ];
    let stores = prop_oneof![
        Just("store = 'local?root=/srv'\nstore_dir = '/gnu/store'\n"),
        Just("root = '/mnt'\n"),
        Just("virtual_nix_store = '/x/store'\nnix_db_path = '/s/db/db.sqlite'\n"),
        Just("real_nix_store = '/mnt/nix/store'\nstore_dir = '/y/store'\n"),
        Just(""),
    ];
    let keys = prop_oneof![
        Just("secret_key_file = '/k'\n"),
        Just("sign_key_paths = ['/k', '/l']\nsign_key_path = '/m'\n"),
        Just(""),
    ];
    let compression = prop_oneof![
        Just("compressed_cache = '/c'\ncompressed_cache_size = 1025\n"),
        Just("compressed_cache = '/c'\nenable_compression = true\n"),
        Just("enable_compression = true\n"),
        Just("enable_compression = false\n"),
        Just("compress = 'always'\naccess_log = '/log'\n"),
        Just("access_log_format = 'debug'\nauth_file = '/f'\n"),
        Just(""),
    ];
    let numbers = (any::<i32>(), 1_u32..1000, 0.001_f64..1e6).prop_map(|(a, b, c)| {
        format!("priority = {a}\nworkers = {b}\nmax_connections = {b}\nread_timeout = {c:?}\n")
    });
    (addresses, stores, keys, compression, numbers)
        .prop_map(|(a, b, c, d, e)| [a, b, c, d, &e].concat())
}

/// Returns any subset of the variables.
fn variables() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let all = vec![
        ("NIX_REMOTE", "/env"),
        ("NIX_STORE_DIR", "/v/store"),
        ("NIX_STATE_DIR", "/state"),
        ("NIX_SECRET_KEY_FILE", "/k"),
        ("SIGN_KEY_PATHS", "/p /q"),
    ];
    proptest::sample::subsequence(all, 0..=5)
}

proptest! {
    #[test]
    fn printed_file_gives_the_same_settings(
        file in files(),
        variables in variables(),
        port in proptest::option::of(any::<u16>()),
        store_dir in proptest::option::of(Just("/flag/store".to_owned())),
    ) {
        let environment = environment(&variables);
        let mut settings = parse(&file);
        settings.port.set_flag("--port", port);
        settings.store_dir.set_flag("--store-dir", store_dir.clone());
        let settings = settings.resolve(&environment).unwrap();
        let text = printed(settings.clone(), &variables);
        let mut again = parse(&text);
        again.store_dir.set_flag("--store-dir", store_dir);
        let again = again.resolve(&environment).unwrap();
        prop_assert_eq!(values(&text), values(&printed(again.clone(), &variables)));
        prop_assert_eq!(settings.secret_key_files(), again.secret_key_files());
        prop_assert_eq!(settings.listen.value(), again.listen.value());
        prop_assert_eq!(
            settings.served_store(&environment).unwrap(),
            again.served_store(&environment).unwrap()
        );
    }
}
