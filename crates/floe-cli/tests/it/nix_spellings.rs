//! Users of Nix type its spellings: floe has them too, or says which of its own to type.

use floe_testkit::run;

use crate::support::floe;

/// Command lines of users of Nix, and the commands that floe names instead.
const HINTS: &[(&str, &str)] = &[
    ("path-info /nix/store/x", "try floe info"),
    ("path-info -r ./result", "try floe info --recursive"),
    ("path-info -rsSh ./result", "try floe info --closure-size"),
    ("path-info -s ./result", "try floe info --size"),
    ("store gc", "try floe gc"),
    ("store verify --all", "try floe verify"),
    ("store delete /nix/store/x", "try floe delete"),
    ("store optimise", "try floe optimise"),
    ("store info", "try floe config store"),
    ("store sign -k key --all", "try floe sign"),
    ("gc -d", "try floe gc --keep-generations 1"),
    ("gc --delete-old", "try floe gc --keep-generations 1"),
    ("realise /nix/store/x", "try floe install"),
    ("query ./result", "try floe info --recursive"),
    (
        "profile install ./a",
        "whose generation has that path alone",
    ),
    ("profile add ./a", "try floe install -o LINK PATH"),
    ("profile switch-generation 2", "try floe profile switch"),
    ("nix-env -iA nixpkgs.hello", "try floe install -o LINK PATH"),
    ("nix-env -q", "try floe list"),
    ("store ls /nix/store/x", "try floe ls"),
    (
        "store repair-all /nix/store/x",
        "floe has no such command; try floe --help",
    ),
    ("store path-from-hash-part x", "try floe info HASH"),
    (
        "nix-store --generate-binary-cache-key a b c",
        "try floe key generate NAME",
    ),
    ("list-roots", "try floe roots"),
    (
        "delete-generations old",
        "try floe profile delete-generations",
    ),
    ("store diff-closures ./a ./b", "try floe diff"),
    (
        "nix-shell -p jq",
        "try floe shell with names or store paths",
    ),
    ("nix-build", "try floe install with a name or a store path"),
    ("nix-channel --update", "floe has no channels"),
    ("nix build ./a", "try floe install with a name"),
    ("nix profile list", "try floe --help"),
    ("eval x", "floe evaluates no Nix expressions"),
    ("upgrade jq", "try floe install -o LINK PATH"),
    ("update", "try floe install -o LINK PATH"),
    ("add jq", "try floe install jq"),
    ("store add ./a", "try floe add"),
    ("store add-file ./a", "try floe add --mode flat"),
    ("pull ./a", "try floe install"),
    ("upload ./a", "floe has no such command; try floe push"),
    ("profile remove a", "try floe uninstall"),
    ("shell ./result -c jq", "try floe shell PATH -- COMMAND"),
    ("key generate-secret --key-name x", "try floe key generate"),
    ("key convert-secret-to-public", "try floe key public"),
    ("show-config", "try floe config"),
    ("remove jq", "try floe uninstall"),
    ("rollback", "try floe profile rollback"),
    ("list-generations", "try floe profile list"),
    ("version", "try floe --version"),
    ("daemon", "try floe nix-daemon"),
    ("gc -d --dry-run", "--keep-generations 1 --dry-run"),
    ("fetch /nix/store/x", "try floe install"),
    ("store copy-sigs ./a", "try floe copy-sigs"),
    ("nix-hash --type sha256 ./a", "try floe hash FILE"),
    ("nix-hash --flat ./a", "try floe hash --flat"),
    ("hash --base32 ./a", "try floe hash --format nix32"),
    ("hash path ./a", "try floe hash FILE"),
    ("hash to-sri sha256:00", "try floe hash --convert HASH"),
    (
        "run ./result -x",
        "write -- before the arguments of the program",
    ),
    (
        "shell ./result jq --version",
        "write -- before the arguments of the program",
    ),
    (
        "run jq jq",
        "cannot pass jq to the program: it may be an argument of floe run; write -- before",
    ),
    (
        "install jq@nixos-unstable",
        "https://hydra.nixos.org/job/nixos/unstable/nixpkgs.jq.",
    ),
    ("copy jq", "--to <STORE|URL>"),
    (
        "install nixpkgs#jq",
        "floe does not evaluate Nix expressions",
    ),
    ("copy --to u@web1 ./a", "ssh-ng://u@web1"),
    ("copy --to web1 ./a", "ssh-ng://web1"),
    ("install .", "cannot parse \".\""),
    ("copy --to ssh:web1 ./a", "ssh-ng://HOST"),
    ("copy --to s3:cache ./a", "s3://BUCKET"),
    (
        "install --from cache.nixos.org x",
        "https://cache.nixos.org",
    ),
];

#[test]
fn spellings_of_nix_get_the_command_of_floe() {
    for (line, hint) in HINTS {
        // The code of Nix's own programs.
        let code = if line.starts_with("nix") { 1 } else { 2 };
        let ran = run(&mut floe(line.split(' '))).expect(code);
        assert!(ran.stderr.contains(hint), "{line}: {}", ran.stderr);
        assert!(!ran.stderr.contains("similar"), "{line}: {}", ran.stderr);
    }
}

/// A name that is far from all others gets no suggestion, and one that is near gets it.
#[test]
fn only_near_names_are_suggested() {
    let far = run(&mut floe(["frobnicate"])).expect(2);
    assert!(!far.stderr.contains("similar"), "{}", far.stderr);
    let near = run(&mut floe(["instal"])).expect(2);
    let near = near.stderr_contains("similar").stderr_contains("'install'");
    assert!(!near.stderr.contains("'list'"), "{}", near.stderr);
    let near = run(&mut floe(["gc", "--dry-rum"])).expect(2);
    near.stderr_contains("--dry-run");
    let shown = run(&mut floe(["config", "show", "store"])).expect(0).stdout;
    assert!(shown.starts_with("store ="), "{shown}");
}
