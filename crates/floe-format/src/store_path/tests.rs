//! Tests of store paths and store directories.

use proptest::prelude::*;

use super::*;

const HASH_PART: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";

fn named(name: &str) -> Result<StorePath, StorePathError> {
    StorePath::parse(&format!("{HASH_PART}-{name}"))
}

#[test]
fn base_name_splits_into_hash_part_and_name() {
    let path = named("hello-2.12").unwrap();
    assert_eq!(path.hash_part().as_str(), HASH_PART);
    assert_eq!(path.name(), "hello-2.12");
    assert_eq!(path.to_string(), path.as_str());
    assert!(!path.is_derivation());
    assert!(named("hello.drv").unwrap().is_derivation());
    assert!(named(".drv").unwrap().is_derivation());
}

#[test]
fn names_are_limited_as_in_nix() {
    for name in ["a", "...", ".a", "..a-b", "...-a"] {
        assert!(named(name).is_ok(), "{name}");
    }
    assert!(named(&"x".repeat(NAME_LEN_MAX)).is_ok());
    assert!(matches!(
        named(&"x".repeat(212)),
        Err(StorePathError::NameTooLong(_))
    ));
    assert_eq!(named(""), Err(StorePathError::NameEmpty));
    for name in [".", "..", ".-", ".-a", "..-", "..-a"] {
        assert_eq!(named(name), Err(StorePathError::NameDots(name.into())));
    }
    for character in ['/', ' ', '\0', '~', 'é', '@', '\n'] {
        let name = format!("a{character}");
        assert_eq!(
            named(&name),
            Err(StorePathError::NameCharacter { name, character })
        );
    }
    assert!(named("+-._?=Z9").is_ok());
}

#[test]
fn invalid_hash_part_is_error_with_its_cause() {
    use StorePathError::{HashPartCharacter, HashPartLength, NoHashPart};
    for text in [
        "hello",
        "firefox-esr-128.0",
        "nixpkgs#hello",
        "result",
        "",
        "-",
    ] {
        assert_eq!(StorePath::parse(text), Err(NoHashPart(text.into())));
    }
    for (text, character) in [
        ("ebw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x", 'e'),
        ("jdnvfzws3kzyf64f8hvkbqfzyp8zxf8e", 'e'),
        ("7Bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x", 'B'),
        ("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2é-x", 'é'),
    ] {
        let path = text.into();
        let expected = HashPartCharacter { path, character };
        assert_eq!(StorePath::parse(text), Err(expected));
    }
    for (text, len) in [
        ("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2cc-x", 33),
        ("bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x", 31),
        ("bw2d1cqdpnxi05lr3s6pmcgl5xazl2c", 31),
    ] {
        let path = text.into();
        let expected = HashPartLength { path, len };
        assert_eq!(StorePath::parse(text), Err(expected));
    }
    assert_eq!(StorePath::parse(HASH_PART), Err(StorePathError::NameEmpty));
}

#[test]
fn store_dir_is_normalized_and_must_be_absolute() {
    assert_eq!(
        StoreDir::new("//nix/./x/../store/").unwrap(),
        StoreDir::default()
    );
    for text in ["", "nix/store", "/", "/..", "/a\nb", "/a /"] {
        assert!(StoreDir::new(text).is_err(), "{text:?}");
    }
}

#[test]
fn full_path_parses_literally_or_normalized() {
    let dir = StoreDir::default();
    let path = named("x").unwrap();
    assert_eq!(dir.full_path(&path), format!("/nix/store/{path}"));
    assert_eq!(dir.parse(&dir.full_path(&path)), Ok(path.clone()));
    let odd = format!("/nix//store/./{path}/");
    assert!(dir.parse(&odd).is_err());
    assert_eq!(dir.parse_normalizing(&odd), Ok(path.clone()));
    for text in [
        format!("/nix/store/{path}/bin"),
        format!("/gnu/store/{path}"),
        format!("/nix/storex/{path}"),
        format!("nix/store/{path}"),
        "/nix/store".into(),
        String::new(),
    ] {
        assert!(dir.parse_normalizing(&text).is_err(), "{text}");
    }
}

#[test]
fn file_in_store_path_belongs_to_it_unless_dots_leave() {
    let dir = StoreDir::default();
    let path = named("x").unwrap();
    let full = dir.full_path(&path);
    for suffix in [
        "",
        "/",
        "/bin/jq",
        "/.",
        "/./bin//jq/",
        "/bin/..",
        "/a/b/../../c",
    ] {
        let text = format!("{full}{suffix}");
        assert_eq!(dir.to_store_path(&text), Ok(path.clone()), "{text}");
    }
    for text in [
        format!("//nix/./store//{path}"),
        format!("/home/../nix/store/{path}/bin"),
    ] {
        assert_eq!(dir.to_store_path(&text), Ok(path.clone()), "{text}");
    }
    for suffix in ["/..", "/../../etc", "/bin/../..", "/./../x", "/..//"] {
        let text = format!("{full}{suffix}");
        let left = StorePathError::Leaves(text.clone());
        assert_eq!(dir.to_store_path(&text), Err(left));
    }
    let other = format!("{full}/../{path}");
    assert!(dir.to_store_path(&other).is_err());
    for text in [
        "/nix/store",
        "/nix/store/..",
        "/nix",
        "/",
        "",
        "nix/store/x",
    ] {
        let found = dir.to_store_path(text);
        assert!(
            matches!(found, Err(StorePathError::NotInStore { .. })),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn made_store_path_parses(
        kind: String,
        digest: String,
        name in "[a-zA-Z0-9+_?=][a-zA-Z0-9+_?=.-]{0,40}",
    ) {
        let dir = StoreDir::default();
        let path = dir.make_store_path(&kind, &digest, &name).unwrap();
        prop_assert_eq!(path.name(), name.as_str());
        prop_assert_eq!(dir.parse(&dir.full_path(&path)).unwrap(), path);
    }

    #[test]
    fn parsing_any_text_does_not_panic(text: String) {
        let _ = StorePath::parse(&text);
        let _ = StoreDir::default().parse_normalizing(&text);
        let _ = StoreDir::default().to_store_path(&text);
        let _ = StoreDir::new(&text);
    }
}
