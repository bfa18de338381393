//! The names of hash algorithms as values of options.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use floe_format::HashAlgorithm;

/// Returns the parser of a hash algorithm, which a shell can complete.
pub(crate) fn hash_algorithm() -> impl TypedValueParser<Value = HashAlgorithm> {
    let names = HashAlgorithm::ALL.map(HashAlgorithm::name);
    PossibleValuesParser::new(names).try_map(|name| {
        HashAlgorithm::from_name(&name).ok_or_else(|| format!("unknown hash algorithm {name}"))
    })
}
