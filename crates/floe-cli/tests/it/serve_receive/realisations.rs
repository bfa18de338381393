//! Realisations that clients upload.

use std::fs;
use std::os::unix::fs::symlink;

use super::Receiving;
use super::uploads::{hash, nar, narinfo, part};

/// Clients cannot make the realisation of another one unreadable, and then replace it.
#[test]
fn realisations_stay_short() {
    let receiving = Receiving::start(&[]);
    let contents = nar("one");
    for letter in ["a", "b"] {
        receiving.put(&format!("/nar/{}.nar", hash(&contents)), &contents);
        let text = narinfo(letter, "web", &contents, "");
        let target = format!("/{}.narinfo", part(letter));
        assert_eq!(receiving.put(&target, text.as_bytes()).status, 201);
    }
    let id = format!("sha256:{}!out", "1".repeat(64));
    let target = format!("/realisations/{id}.doi");
    let put = |letter: &str, signatures: &[String]| {
        let path = format!("{}-web", part(letter));
        let text = serde_json::json!({
            "id": id, "outPath": path, "signatures": signatures, "dependentRealisations": {},
        });
        let text = text.to_string();
        assert!(text.len() < 1024 * 1024);
        receiving.put(&target, text.as_bytes()).status
    };
    let junk = |name: &str, len: usize| -> Vec<String> {
        let signature = format!("{}==", "A".repeat(86));
        (0..len)
            .map(|number| format!("{name}{number}:{signature}"))
            .collect()
    };
    assert_eq!(put("a", &[]), 201);
    for name in ["x", "y"] {
        put("a", &junk(name, 6000));
        put("a", &[format!("{name}:{}", "A".repeat(900_000))]);
    }
    let kept = receiving.get(&target).body.len();
    assert!((500..20_000).contains(&kept), "{kept} bytes");
    assert_eq!(put("b", &[]), 409);
    let place = receiving.directory.join(&target[1..]);
    fs::write(&place, "damaged").unwrap();
    assert_eq!(put("b", &[]), 409);
    // One that the server cannot read may be another one.
    fs::remove_file(&place).unwrap();
    symlink(&place, &place).unwrap();
    assert_eq!(put("b", &[]), 500);
    assert!(place.is_symlink());
}
