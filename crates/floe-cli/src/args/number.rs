//! Whole numbers on the command line.

use std::num::NonZeroUsize;
use std::str::FromStr;

use floe_config::ByteSize;

use crate::exit::UsageError;
use crate::messages::arguments;

/// Parses a number above 0.
pub(crate) fn parse_count(text: &str) -> Result<NonZeroUsize, UsageError> {
    text.parse()
        .map_err(|_| UsageError(arguments::NOT_A_COUNT.into()))
}

/// Parses a number that fits into the type.
pub(crate) fn parse_number<T: FromStr>(text: &str) -> Result<T, UsageError> {
    text.parse()
        .map_err(|_| UsageError(arguments::NOT_A_NUMBER.into()))
}

/// Parses an amount of bytes, such as 10G.
pub(crate) fn parse_bytes(text: &str) -> Result<ByteSize, UsageError> {
    text.parse()
        .map_err(|error| UsageError(arguments::not_bytes(text, error)))
}

/// Parses a TCP port.
pub(crate) fn parse_port(text: &str) -> Result<u16, UsageError> {
    text.parse()
        .map_err(|_| UsageError(arguments::NOT_A_PORT.into()))
}
