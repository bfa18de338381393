//! Tests of the protocol with recorded conversations and with the corpus of the fuzz targets.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod conversations;
mod corpus;
