//! Tests of floe-messages with valid and invalid messages of every shape.

mod c;
mod cddl;
mod corpus;
mod every;
mod hostile_cbor;
mod hostile_flat;
mod lists;
mod properties;

#[allow(
    dead_code,
    unreachable_pub,
    reason = "generated for tests and benchmarks, each of which uses a part"
)]
#[path = "../shapes/mod.rs"]
mod shapes;
