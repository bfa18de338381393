//! The scopes of logins, and the scopes that each route needs.

use std::fmt;

use crate::http::request::Method;
use crate::http::route::Route;

/// A group of routes that a login may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The binary cache: narinfos, NARs, logs, listings, files.
    Read,
    /// The figures of the server.
    Metrics,
    /// The state and the version of the server.
    Status,
    /// Uploads.
    Push,
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    bits: u8,
}

impl Scope {
    /// All scopes, in the order in which they are printed.
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Metrics, Scope::Status, Scope::Push];

    /// Returns the name in the login file.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Metrics => "metrics",
            Scope::Status => "status",
            Scope::Push => "push",
        }
    }

    /// Returns the scope with a name.
    pub fn from_name(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Scopes {
    /// The scopes of a login that names none.
    pub const DEFAULT: Scopes = Scopes { bits: 1 };

    /// Makes a set.
    pub fn new(scopes: impl IntoIterator<Item = Scope>) -> Scopes {
        let bits = scopes.into_iter().fold(0, |bits, scope| bits | scope.bit());
        Scopes { bits }
    }

    /// Parses names separated by commas, at least one.
    pub fn parse(text: &str) -> Option<Scopes> {
        let scopes: Option<Vec<Scope>> = text.split(',').map(Scope::from_name).collect();
        scopes.map(Scopes::new)
    }

    /// Whether the set has one of these scopes.
    pub(crate) fn has_any(self, scopes: &[Scope]) -> bool {
        scopes.iter().any(|scope| self.bits & scope.bit() != 0)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }
}

/// The names, separated by commas.
impl fmt::Display for Scopes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scopes = Scope::ALL
            .into_iter()
            .filter(|scope| self.has_any(&[*scope]));
        let names: Vec<&str> = scopes.map(Scope::name).collect();
        formatter.write_str(&names.join(","))
    }
}

/// Returns the scopes of which a login needs one for a method of a route. A route without scopes
/// needs no login.
///
/// `readers_browse` tells whether those who may read may look at the paths of the store.
pub(crate) fn required_scopes(
    method: Method,
    route: &Route,
    readers_browse: bool,
) -> &'static [Scope] {
    match route {
        // The client must not send its login over plain HTTP.
        Route::Redirect => &[],
        _ if matches!(method, Method::Put | Method::Delete) => &[Scope::Push],
        Route::Metrics => &[Scope::Metrics],
        Route::Version => &[Scope::Status, Scope::Read],
        Route::Browse(_) if readers_browse => &[Scope::Status, Scope::Read],
        Route::Browse(_) => &[Scope::Status],
        // Service managers and load balancers have no login.
        Route::Health | Route::Ready => &[],
        // Also a route that does not exist: a client without login must not find out which do.
        _ => &[Scope::Read],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_a_list_of_known_names() {
        let both = Scopes::new([Scope::Status, Scope::Read]);
        assert_eq!(Scopes::parse("status,read,status"), Some(both));
        assert_eq!(both.to_string(), "read,status");
        assert_eq!(Scopes::parse("read"), Some(Scopes::DEFAULT));
        for text in ["", "write", "read,", "Read", "read, status"] {
            assert_eq!(Scopes::parse(text), None, "{text}");
        }
        assert!(both.has_any(&[Scope::Metrics, Scope::Status]));
        assert!(!both.has_any(&[Scope::Metrics]) && !both.has_any(&[]));
    }

    #[test]
    fn each_route_needs_a_scope_of_its_kind() {
        for route in [Route::Root, Route::CacheInfo, Route::Unknown] {
            assert_eq!(
                required_scopes(Method::Get, &route, false),
                [Scope::Read],
                "{route:?}"
            );
        }
        assert_eq!(
            required_scopes(Method::Get, &Route::Metrics, false),
            [Scope::Metrics]
        );
        assert_eq!(required_scopes(Method::Head, &Route::Ready, false), []);
        for route in [Route::Ready, Route::CacheInfo, Route::Unknown] {
            for method in [Method::Put, Method::Delete] {
                assert_eq!(required_scopes(method, &route, true), [Scope::Push]);
            }
        }
    }
}
