//! The processes that keep a command from changing a database.

use std::fmt;

/// A process that reads the database or has the store open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseReader {
    /// The number of the process.
    pub process: u32,
    /// The name of its program.
    pub name: String,
}

impl fmt::Display for DatabaseReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.process, self.name)
    }
}

/// Describes the programs that use a store, and the fix.
pub(super) fn describe_users(users: &[DatabaseReader]) -> String {
    let names: Vec<String> = users.iter().map(ToString::to_string).collect();
    let names = match names.len() {
        0 => String::new(),
        _ => format!(": {}", names.join(", ")),
    };
    format!(
        "other programs have the store open for changes{names}; try stopping them first, such as \
         nix-daemon"
    )
}
