//! Paths that are added by their contents.

use std::collections::BTreeSet;

use floe_format::content_address::ContentAddressMethod;
use floe_format::{HashAlgorithm, PathInfo, StorePath};

use super::connection::Connection;
use crate::error::HostError;

/// Adds the file or tree whose contents follow.
///
/// Errors: [`HostError::Refused`] for a kind of content address that floe cannot make, and those of
/// the connection and the store.
pub(super) fn add_to_store(
    connection: &mut Connection<'_>,
    (name, method): (&str, &str),
    references: BTreeSet<StorePath>,
) -> Result<PathInfo, HostError> {
    let kind = parse_method(method).ok_or_else(|| {
        HostError::Refused(format!(
            "cannot add {name:?}: floe makes no content addresses of the kind {method:?}"
        ))
    })?;
    connection.add_by_contents(name, kind, references)
}

/// Parses a kind of content addresses: `text:ALGORITHM`, `fixed:ALGORITHM` or `fixed:r:ALGORITHM`.
fn parse_method(text: &str) -> Option<(ContentAddressMethod, HashAlgorithm)> {
    let (kind, algorithm) = text.rsplit_once(':')?;
    let method = match kind {
        "text" => ContentAddressMethod::Text,
        "fixed" => ContentAddressMethod::Flat,
        "fixed:r" => ContentAddressMethod::NixArchive,
        _ => return None,
    };
    Some((method, HashAlgorithm::from_name(algorithm)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_content_addresses_are_parsed() {
        for (text, expected) in [
            (
                "text:sha256",
                Some((ContentAddressMethod::Text, HashAlgorithm::Sha256)),
            ),
            (
                "fixed:sha1",
                Some((ContentAddressMethod::Flat, HashAlgorithm::Sha1)),
            ),
            (
                "fixed:r:sha512",
                Some((ContentAddressMethod::NixArchive, HashAlgorithm::Sha512)),
            ),
            ("fixed:git:sha1", None),
            ("sha256", None),
            ("fixed:r:", None),
        ] {
            assert_eq!(parse_method(text), expected, "{text}");
        }
    }
}
