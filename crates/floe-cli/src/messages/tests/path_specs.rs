//! Messages about texts that are not store paths.

use floe_format::StoreDir;
use floe_transfer::PathSpec;

use super::*;

fn check_spec(text: &str, expected: &Expect) {
    check(
        PathSpec::parse(text, &StoreDir::default()).unwrap_err(),
        expected,
    );
}

#[test]
fn path_spec_errors_name_the_cause() {
    let job = format!("nixpkgs.hello.{}-linux", std::env::consts::ARCH);
    for text in [
        "hello",
        "nixpkgs#hello",
        "nixpkgs.hello",
        "hello-2.12.1",
        "hello@nixos-unstable",
    ] {
        let error = PathSpec::parse(text, &StoreDir::default()).unwrap_err();
        let shown = error.to_string().replace(&job, "JOB").replace(text, "TEXT");
        expect![[
            r#"cannot parse "TEXT" as a store path: it names a package, and floe does not evaluate Nix expressions. `curl -fsSLH 'Accept: application/json' https://hydra.nixos.org/job/nixos/unstable/JOB/latest | grep -o '"path":"[^"]*'` prints its paths; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]]
        .assert_eq(&shown);
    }
    for text in [".#hello", "github:x/y#z", "nixpkgs#a$(b)"] {
        let error = PathSpec::parse(text, &StoreDir::default()).unwrap_err();
        expect![[
            r#"cannot parse "TEXT" as a store path: it names a package, and floe does not evaluate Nix expressions; on a machine with Nix, `nix build --print-out-paths INSTALLABLE` prints its path; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]]
        .assert_eq(&error.to_string().replace(text, "TEXT"));
    }
    check_spec(
        "./result",
        &expect![[
            r#"cannot parse "./result" as a store path: it is not in /nix/store; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
    check_spec(
        "/etc/passwd",
        &expect![[
            r#"cannot parse "/etc/passwd" as a store path: it is not in /nix/store; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
    check_spec(
        "jdnvfzws3kzyf64f8hvkbqfzyp8zxf8e",
        &expect![[
            r#"cannot parse "jdnvfzws3kzyf64f8hvkbqfzyp8zxf8e" as a store path: its hash part has the character 'e', and only digits and lower-case letters other than e, o, t and u are allowed; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
    check_spec(
        "/nix/store/JDNVFZWS3KZYF64F8HVKBQFZYP8ZXF81-jq",
        &expect![[
            r#"cannot parse "/nix/store/JDNVFZWS3KZYF64F8HVKBQFZYP8ZXF81-jq" as a store path: its hash part has the character 'J', and only digits and lower-case letters other than e, o, t and u are allowed; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
    check_spec(
        "dnvfzws3kzyf64f8hvkbqfzyp8zxf81-jq",
        &expect![[
            r#"cannot parse "dnvfzws3kzyf64f8hvkbqfzyp8zxf81-jq" as a store path: its hash part has 31 characters instead of 32; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
    let path = path("jq-1.6");
    check_spec(
        &format!("{path}^out"),
        &expect![[
            r#"cannot parse "00000000000000000000000000000000-jq-1.6^out" as a store path: the text after '^' selects an output, and only floe copy, install and push accept that, for a derivation (.drv); give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
    check_spec(
        &format!("/nix/store/{path}.drv!out"),
        &expect![[
            r#"cannot parse "/nix/store/00000000000000000000000000000000-jq-1.6.drv!out" as a store path: the text after '!' selects an output, and only floe copy, install and push accept that, for a derivation (.drv); give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
    check_spec(
        &format!("/nix/store/{path}/../../etc"),
        &expect![[
            r#"cannot parse "/nix/store/00000000000000000000000000000000-jq-1.6/../../etc" as a store path: a .. in it leads out of the path; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
    check_spec(
        &format!("{path} {path}"),
        &expect![[
            r#"cannot parse "00000000000000000000000000000000-jq-1.6 00000000000000000000000000000000-jq-1.6" as a store path: its name has the character ' ', which is not allowed; give /nix/store/HASH-NAME, HASH-NAME or HASH"#
        ]],
    );
}
