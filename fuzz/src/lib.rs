//! Properties of floe-format that hold for all bytes: one function per fuzz target.
//!
//! The fuzz targets call the functions with bytes of libFuzzer. The tests of floe-format include
//! this file and call them with the committed corpus. The file must therefore build with stable
//! Rust.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::content_address::ModuloHasher;
use floe_format::derivation::{DerivationError, DerivationHashCache};
use floe_format::lease::{Lease, Plan, PlannedNames};
use floe_format::nar::layout::Node;
use floe_format::nar::listing::{self, Listing};
use floe_format::nar::read::{NarError, NarEvent, NarReader};
use floe_format::nar::write;
use floe_format::nix_conf::{self, Statement};
use floe_format::validity_registration::NarHashes;
use floe_format::{
    CacheInfo, ContentAddress, Derivation, DrvOutput, Hash, HashAlgorithm, NarInfo, Netrc,
    PathInfo, PublicKey, Realisation, SecretKey, Signature, StoreDir, StorePath, TrustedKeys,
    ValidityRegistration, nix32,
};

/// Checks that the result of reading a NAR does not depend on how it is cut into pieces, and that
/// writing its events again gives the same bytes.
pub fn check_nar(data: &[u8]) {
    let whole = read_nar([data]);
    assert_eq!(read_nar(data.chunks(1)), whole);
    assert_eq!(read_nar(data.chunks(11)), whole);
    let middle = data.len() / 2;
    assert_eq!(read_nar([&data[..middle], &data[middle..]]), whole);
    if let Ok((written, root)) = whole {
        assert_eq!(written, data);
        let root = root.expect("a NAR has a root");
        assert_eq!(root.nar_size(), data.len() as u64);
        if let Ok(text) = listing::to_text(&root) {
            let listing = Listing::parse(text.as_bytes()).expect("a listing that was written");
            assert_eq!(listing.root, root);
            assert!(listing.offsets_match());
        }
    }
}

/// Checks that a narinfo that parses equals what its text form parses to.
pub fn check_narinfo(data: &[u8]) {
    let dir = StoreDir::default();
    let Ok(narinfo) = NarInfo::parse(data, &dir) else {
        return;
    };
    let text = narinfo.to_text(&dir);
    assert_eq!(NarInfo::parse(text.as_bytes(), &dir).as_ref(), Ok(&narinfo));
    narinfo.to_json(&dir);
    narinfo.info.matches_content_address(&dir);
    narinfo.info.is_signed_by(&dir, &trusted_keys());
}

/// Checks that a realisation that parses equals what its JSON form parses to. The first line is the
/// output, and the others are the object of a binary cache.
pub fn check_realisation(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (Some(id), Some(object)) = (parts.next(), parts.next()) else {
        return;
    };
    let Some(id) = std::str::from_utf8(id)
        .ok()
        .and_then(|id| DrvOutput::parse(id).ok())
    else {
        return;
    };
    assert_eq!(DrvOutput::parse(&id.to_string()).as_ref(), Ok(&id));
    assert_eq!(
        DrvOutput::from_object_name(&id.object_name()).as_ref(),
        Some(&id)
    );
    let Ok(realisation) = Realisation::parse(&id, object) else {
        return;
    };
    let text = realisation.to_json().to_string();
    let again = Realisation::parse(&id, text.as_bytes());
    assert_eq!(again.as_ref(), Ok(&realisation));
    realisation.is_signed_by(&trusted_keys());
}

/// Checks that registrations that parse equal what their text forms parse to.
pub fn check_validity_registration(data: &[u8]) {
    let dir = StoreDir::default();
    let parse = |text: &[u8], hashes| ValidityRegistration::parse_all(text, hashes, &dir);
    let Ok(registrations) = parse(data, NarHashes::Given) else {
        _ = parse(data, NarHashes::Absent);
        return;
    };
    for registration in registrations {
        let (nar_hash, nar_size) = registration.nar.expect("a hash that was demanded");
        let info = PathInfo {
            path: registration.path.clone(),
            nar_hash,
            nar_size,
            references: registration.references.clone(),
            deriver: registration.deriver.clone(),
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        let text = info.to_registration(&dir);
        let again = parse(text.as_bytes(), NarHashes::Given);
        assert_eq!(again, Ok(vec![registration]));
    }
}

/// Checks that a hash that parses also parses from all of its text forms.
pub fn check_hash(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(hash) = Hash::parse_prefixed(text) {
        for form in [hash.to_nix32(), hash.to_base16(), hash.to_sri()] {
            assert_eq!(Hash::parse_prefixed(&form), Ok(hash));
        }
        for form in [hash.digest_nix32(), hash.digest_base16()] {
            assert_eq!(Hash::parse_unprefixed(&form, hash.algorithm()), Ok(hash));
        }
    }
    for algorithm in HashAlgorithm::ALL {
        if let Ok(hash) = Hash::parse_any(text, Some(algorithm)) {
            assert_eq!(hash.algorithm(), algorithm);
        }
    }
}

/// Checks that encoding and decoding of nix32 are inverse to each other.
pub fn check_nix32(data: &[u8]) {
    let encoded = nix32::encode(data);
    assert_eq!(encoded.len(), nix32::encoded_len(data.len()));
    assert_eq!(nix32::decode(&encoded).as_deref(), Ok(data));
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(bytes) = nix32::decode(text)
    {
        assert_eq!(nix32::encode(&bytes), text);
    }
}

/// Checks that signatures and keys that parse equal what their text forms parse to.
pub fn check_signature(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(signature) = Signature::parse(text) {
        assert_eq!(
            Signature::parse(&signature.to_string()).as_ref(),
            Ok(&signature)
        );
        assert!(!trusted_keys().verify(b"a message that was never signed", &signature));
    }
    if let Ok(key) = PublicKey::parse(text) {
        assert_eq!(PublicKey::parse(&key.to_string()), Ok(key));
    }
    if let Ok(key) = SecretKey::parse(text) {
        let again = SecretKey::parse(&key.to_text()).expect("the text of a key");
        assert_eq!(again.to_text(), key.to_text());
        assert!(key.public().verify(data, &again.sign(data)));
    }
    if let Ok(keys) = TrustedKeys::parse_list(text) {
        assert_eq!(keys.names().count(), keys.iter().count());
    }
}

/// Checks that a `nix-cache-info` that parses equals what its text form parses to.
pub fn check_cache_info(data: &[u8]) {
    let Ok(info) = CacheInfo::parse(data) else {
        return;
    };
    assert_eq!(CacheInfo::parse(info.to_text().as_bytes()), Ok(info));
}

/// Checks that leases, plans and their names parse to themselves.
pub fn check_lease(data: &[u8]) {
    if let Ok(lease) = Lease::parse(data) {
        assert_eq!(Lease::parse(lease.to_string().as_bytes()), Ok(lease));
    }
    if let Ok(plan) = Plan::parse(data) {
        assert_eq!(Plan::parse(plan.to_string().as_bytes()), Ok(plan));
    }
    if let Ok(names) = PlannedNames::parse(data) {
        let text = names.to_string();
        assert_eq!(PlannedNames::parse(text.as_bytes()), Ok(names));
    }
}

/// Checks that a netrc that parses has credentials for the host in its first entry.
pub fn check_netrc(data: &[u8]) {
    let Ok(netrc) = Netrc::parse(data) else {
        return;
    };
    let mut words = data
        .split(|byte| *byte <= b' ')
        .filter(|word| !word.is_empty());
    let (first, host) = (words.next(), words.next());
    if let (Some(b"machine"), Some(Ok(host))) = (first, host.map(str::from_utf8))
        && !host.contains('"')
        && !host.starts_with('#')
    {
        assert!(netrc.credentials(host, b"").is_some());
    }
}

/// Checks that the statements of a configuration parse again from one line each.
pub fn check_nix_conf(data: &[u8]) {
    let Ok(lines) = nix_conf::parse(data) else {
        return;
    };
    let mut text = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let before = index.checked_sub(1).map_or(0, |index| lines[index].number);
        assert!(line.number > before);
        append_statement(&mut text, &line.statement);
    }
    let again = nix_conf::parse(&text).expect("lines that were written");
    assert_eq!(again.len(), lines.len());
    for (index, (again, line)) in again.iter().zip(&lines).enumerate() {
        assert_eq!(again.number, index + 1);
        assert_eq!(again.statement, line.statement);
    }
}

fn append_statement(text: &mut Vec<u8>, statement: &Statement<'_>) {
    match statement {
        Statement::Set { name, value } => text.extend([name, &b" = "[..], value].concat()),
        Statement::Include {
            path,
            may_be_missing,
        } => {
            let directive = if *may_be_missing {
                &b"!include "[..]
            } else {
                b"include "
            };
            text.extend([directive, path].concat());
        }
    }
    text.push(b'\n');
}

/// Checks that a listing that parses has the same tree as what its text form parses to.
pub fn check_listing(data: &[u8]) {
    let Ok(found) = Listing::parse(data) else {
        return;
    };
    let text = listing::to_text(&found.root).expect("a tree that was parsed from a listing");
    let again = Listing::parse(text.as_bytes()).expect("a listing that was written");
    assert_eq!(again.root, found.root);
    assert!(again.offsets_match());
    found.offsets_match();
}

/// Checks that a derivation that parses equals what its text form parses to, and that its checks
/// do not panic.
pub fn check_derivation(data: &[u8]) {
    let dir = StoreDir::default();
    let name = "x";
    let Ok(derivation) = Derivation::parse(data, &dir, name) else {
        return;
    };
    let text = derivation
        .to_aterm(&dir, name)
        .expect("a derivation that was parsed");
    assert_eq!(
        Derivation::parse(&text, &dir, name).as_ref(),
        Ok(&derivation)
    );
    derivation.output_paths(&dir, name);
    let mut cannot_read = |path: &StorePath| {
        Err(DerivationError::Read {
            path: path.clone(),
            reason: "no other derivation exists".into(),
        })
    };
    let _ = derivation.check_invariants(
        &dir,
        name,
        &mut DerivationHashCache::default(),
        &mut cannot_read,
    );
    let mut itself = |_: &StorePath| Ok(derivation.clone());
    let _ =
        derivation.check_invariants(&dir, name, &mut DerivationHashCache::default(), &mut itself);
}

/// Checks that store paths and store directories that parse equal what their texts parse to.
pub fn check_store_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(path) = StorePath::parse(text) {
        assert_eq!(path.as_str(), text);
        assert_eq!(format!("{}-{}", path.hash_part(), path.name()), text);
    }
    let dir = StoreDir::default();
    if let Ok(path) = dir.parse(text) {
        assert_eq!(dir.full_path(&path), text);
        assert_eq!(dir.parse_normalizing(text), Ok(path));
    }
    if let Ok(path) = dir.parse_normalizing(text) {
        assert_eq!(dir.parse(&dir.full_path(&path)), Ok(path));
    }
    if let Ok(dir) = StoreDir::new(text) {
        assert_eq!(StoreDir::new(dir.as_str()).as_ref(), Ok(&dir));
        if let Ok(path) = dir.make_store_path("source", text, text) {
            assert_eq!(dir.parse(&dir.full_path(&path)), Ok(path));
        }
    }
}

/// Checks that a content address that parses equals what its text form parses to, and that a
/// modulo hash does not depend on how the contents are cut.
pub fn check_content_address(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(address) = ContentAddress::parse(text)
    {
        assert_eq!(ContentAddress::parse(&address.to_string()), Ok(address));
        let dir = StoreDir::default();
        for self_reference in [false, true] {
            let _ = address.store_path(&dir, "x", &BTreeSet::new(), self_reference);
        }
    }
    let hash_parts = ["7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c", "aa", "aba", ""];
    for hash_part in hash_parts {
        let whole = modulo(hash_part, [data]);
        assert_eq!(modulo(hash_part, data.chunks(1)), whole);
        assert_eq!(modulo(hash_part, data.chunks(7)), whole);
    }
}

fn modulo<'a>(hash_part: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, hash_part);
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finish()
}

fn trusted_keys() -> TrustedKeys {
    TrustedKeys::parse_list(floe_format::signature::CACHE_NIXOS_ORG_KEY).expect("a valid key")
}

/// Reads a NAR in pieces. Returns a NAR written from its events, and its tree.
fn read_nar<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, Option<Node>), NarError> {
    let mut reader = NarReader::new();
    let mut rebuilt = Rebuilt::default();
    write::begin(&mut rebuilt.nar);
    for mut piece in pieces {
        while let Some(event) = reader.next(&mut piece)? {
            rebuilt.add(event);
        }
        assert!(piece.is_empty());
    }
    reader.finish()?;
    assert!(reader.is_finished());
    Ok((rebuilt.nar, rebuilt.root))
}

/// A NAR and a tree that are built from events.
#[derive(Default)]
struct Rebuilt {
    nar: Vec<u8>,
    root: Option<Node>,
    directories: Vec<BTreeMap<Vec<u8>, Node>>,
    names: Vec<Vec<u8>>,
    file: Option<(bool, u64, u64)>,
}

impl Rebuilt {
    fn add(&mut self, event: NarEvent<'_>) {
        match event {
            NarEvent::Directory => {
                write::begin_directory(&mut self.nar);
                self.directories.push(BTreeMap::new());
            }
            NarEvent::Entry { name } => {
                write::begin_entry(&mut self.nar, name);
                self.names.push(name.to_vec());
            }
            NarEvent::EndDirectory => {
                write::end_directory(&mut self.nar);
                let entries = self.directories.pop().expect("a directory has begun");
                self.end(Node::Directory { entries });
            }
            NarEvent::Symlink { target } => {
                write::symlink(&mut self.nar, target);
                self.end(Node::Symlink {
                    target: target.to_vec(),
                });
            }
            NarEvent::File { executable, size } => {
                write::begin_file(&mut self.nar, executable, size);
                self.file = Some((executable, size, 0));
            }
            NarEvent::Data(data) => {
                assert!(!data.is_empty());
                self.nar.extend_from_slice(data);
                let (_, size, seen) = self.file.as_mut().expect("a file has begun");
                *seen += data.len() as u64;
                assert!(*seen <= *size);
            }
            NarEvent::EndFile => {
                let (executable, size, seen) = self.file.take().expect("a file has begun");
                assert_eq!(seen, size);
                write::end_file(&mut self.nar, size);
                self.end(Node::File { executable, size });
            }
            NarEvent::End => assert!(self.root.is_some() && self.directories.is_empty()),
        }
    }

    fn end(&mut self, node: Node) {
        match self.directories.last_mut() {
            None => self.root = Some(node),
            Some(entries) => {
                let name = self.names.pop().expect("an entry has a name");
                assert!(entries.insert(name, node).is_none());
                write::end_entry(&mut self.nar);
            }
        }
    }
}
