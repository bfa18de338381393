//! Signatures that no client needs.

use std::collections::BTreeSet;

use super::{SIGNATURE_LEN, Signature, TrustedKeys};

/// Drops signatures of a text that no client needs. Keeps those by trusted keys, and the first
/// [`OTHER_SIGNATURES_LEN_MAX`] bytes of others that could be genuine. Returns the number of
/// dropped signatures.
pub(crate) fn drop_junk(
    signatures: &mut BTreeSet<Signature>,
    keys: &TrustedKeys,
    signed_text: impl FnOnce() -> String,
) -> usize {
    let is_plausible = |signature: &Signature| {
        signature.bytes().len() == SIGNATURE_LEN && signature.key_name().len() <= KEY_NAME_LEN_MAX
    };
    let len = |signature: &Signature| signature.to_string().len();
    let is_short = signatures.iter().map(len).sum::<usize>() <= OTHER_SIGNATURES_LEN_MAX;
    if is_short && signatures.iter().all(is_plausible) {
        return 0;
    }
    let signed_text = signed_text();
    let (mut others_len, before) = (0, signatures.len());
    signatures.retain(|signature| {
        if keys.verify(signed_text.as_bytes(), signature) {
            return true;
        }
        if !is_plausible(signature) {
            return false;
        }
        others_len += len(signature);
        others_len <= OTHER_SIGNATURES_LEN_MAX
    });
    before - signatures.len()
}

/// The length of all signatures together that a copy keeps although no trusted key made them, in
/// bytes of their text. A client of the target may trust other keys. Real paths have one to three
/// signatures of about 110 bytes.
pub const OTHER_SIGNATURES_LEN_MAX: usize = 4 * 1024;

/// The longest name of an unknown key that a copy keeps, in bytes.
const KEY_NAME_LEN_MAX: usize = 256;
