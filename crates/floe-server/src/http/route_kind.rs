//! The kinds of routes, by which the server counts its responses.

use super::route::Route;

/// The kind of a route. There are few, so that each can have figures of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// `/HASH.narinfo`
    NarInfo,
    /// `/nar/…`
    Nar,
    /// `/nix-cache-info`
    CacheInfo,
    /// `/HASH.ls`
    Listing,
    /// `/serve/…`
    File,
    /// `/log/…`
    Log,
    /// `/realisations/…` and `/build-trace-v2/…`
    Realisation,
    /// `/pins/…` and `/pins-info`
    Pin,
    /// `/health`, `/ready` and `/version`
    Health,
    /// `/metrics`
    Metrics,
    /// Everything else, and bytes that are not a request.
    Other,
}

impl RouteKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [RouteKind; 11] = [
        RouteKind::NarInfo,
        RouteKind::Nar,
        RouteKind::CacheInfo,
        RouteKind::Listing,
        RouteKind::File,
        RouteKind::Log,
        RouteKind::Realisation,
        RouteKind::Pin,
        RouteKind::Health,
        RouteKind::Metrics,
        RouteKind::Other,
    ];

    /// Returns the name, the value of a label.
    pub fn name(self) -> &'static str {
        match self {
            RouteKind::NarInfo => "narinfo",
            RouteKind::Nar => "nar",
            RouteKind::CacheInfo => "nix_cache_info",
            RouteKind::Listing => "listing",
            RouteKind::File => "file",
            RouteKind::Log => "log",
            RouteKind::Realisation => "realisation",
            RouteKind::Pin => "pin",
            RouteKind::Health => "health",
            RouteKind::Metrics => "metrics",
            RouteKind::Other => "other",
        }
    }
}

impl Route {
    /// Returns the kind of the route.
    pub fn kind(&self) -> RouteKind {
        match self {
            Route::NarInfo { .. } => RouteKind::NarInfo,
            Route::Nar { .. } | Route::CachedNar(_) => RouteKind::Nar,
            Route::CacheInfo => RouteKind::CacheInfo,
            Route::Listing(_) => RouteKind::Listing,
            Route::File { .. } => RouteKind::File,
            Route::Log(_) => RouteKind::Log,
            Route::Realisation(_) => RouteKind::Realisation,
            Route::Pin(_) | Route::PinsInfo => RouteKind::Pin,
            Route::Health | Route::Ready | Route::Version => RouteKind::Health,
            Route::Metrics => RouteKind::Metrics,
            Route::Root | Route::Browse(_) | Route::Redirect | Route::Unknown => RouteKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_at_their_numbers() {
        for (number, kind) in RouteKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }
}
