//! Tests with hashes that Nix converted.

use floe_format::{Hash, HashAlgorithm, base64, nix32};

use crate::text_vector;

#[test]
fn all_forms_of_hashes_are_those_of_nix() {
    let text = text_vector("hashes.txt");
    let mut seen = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, base16, nix32, in_base64, sri] = words[..] else {
            panic!("{line}")
        };
        let algorithm = HashAlgorithm::from_name(name).unwrap();
        let hash = Hash::parse_unprefixed(base16, algorithm).unwrap();
        assert_eq!(hash.to_base16(), format!("{name}:{base16}"));
        assert_eq!(hash.to_nix32(), format!("{name}:{nix32}"));
        assert_eq!(hash.to_sri(), sri);
        assert_eq!(nix32::decode(nix32).unwrap(), hash.digest());
        assert_eq!(base64::encode(hash.digest()), in_base64);
        for text in [nix32, in_base64] {
            assert_eq!(Hash::parse_unprefixed(text, algorithm), Ok(hash));
        }
        assert_eq!(Hash::parse_prefixed(sri), Ok(hash));
        seen += 1;
    }
    assert_eq!(seen, 15);
}
