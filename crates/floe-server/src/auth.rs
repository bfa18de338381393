//! Logins: the clients that may send requests, and what each of them may fetch.
//!
//! ```text
//! field Authorization ─ credentials ─┬─ token: SHA-256, table lookup ───────────┬─ expiry ─ scope
//!                                    ├─ password verified before: keyed hash ───┤
//!                                    └─ other password ─ queue ─ hash, 1 thread ┘
//! ```
//!
//! - [`login_file`] reads the file of the logins, and [`login`] one line of it.
//! - `logins` decides about a request. It never hashes a password: a connection with a password
//!   that is not verified yet goes to the thread of `login_worker`, and its request is processed
//!   again afterwards.
//! - `throttle` limits the failed attempts of each address.
//! - `scopes` has the scope that each route needs.

pub(crate) mod client_id;
pub(crate) mod connection_login;
mod credentials;
pub mod expiry;
pub mod login;
pub mod login_file;
mod login_table;
pub(crate) mod logins;
pub mod scopes;
pub mod secret_hash;
mod throttle;
pub mod token;

pub use expiry::Expiry;
pub use login::{Login, parse_scopes};
pub use login_file::LoginFile;
pub use scopes::{Scope, Scopes};
pub use secret_hash::SecretHash;
