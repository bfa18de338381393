//! From the path of a request to its route. A pure function, which does not know the store.

use floe_format::pin::is_pin_name;
use floe_format::{DrvOutput, HashPart, StorePath, nix32};

use crate::http::request::Request;

/// The thing that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/`: a page for people.
    Root,
    /// `/nix-cache-info`
    CacheInfo,
    /// `/HASH.narinfo`, or with `?json` the same as JSON.
    NarInfo {
        /// The path's hash part.
        hash: HashPart,
        /// Whether the response is JSON.
        json: bool,
    },
    /// `/nar/HASH-NARHASH.nar`, `/nar/HASH.nar` or `/nar/NARHASH.nar?hash=HASH`
    Nar {
        /// The path's hash part.
        hash: HashPart,
        /// The NAR hash that the URL names, in base 32.
        nar_hash: Option<String>,
    },
    /// `/nar/NAME`: a file of the cache that the server has received.
    CachedNar(String),
    /// `/HASH.ls`
    Listing(HashPart),
    /// `/log/NAME`: the build log of a derivation or an output, by name or by hash part.
    Log(LogQuery),
    /// `/serve/HASH/PATH`
    File {
        /// The path's hash part.
        hash: HashPart,
        /// The path within the store path, without slashes at its ends.
        path: String,
    },
    /// `/realisations/ID.doi`, or `/build-trace-v2/DRV/OUTPUT.doi` for Nix after 2.34: the
    /// realisation of an output.
    Realisation(DrvOutput),
    /// `/pins/NAME`: a pin, or the names of all of them with an empty name.
    Pin(String),
    /// `/pins-info`: the identifier of the cache with these pins.
    PinsInfo,
    /// `/browse` and `/browse/HASH`: pages about the store.
    Browse(BrowseQuery),
    /// `/health`: whether the network threads respond.
    Health,
    /// `/ready`: whether the server can serve its store.
    Ready,
    /// `/version`
    Version,
    /// `/metrics`: the figures of the server.
    Metrics,
    /// Anything, over plain HTTP, that the client should request over HTTPS.
    Redirect,
    /// Anything else: the status is 404.
    Unknown,
}

/// The routes that a listener serves. It treats the others as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSet {
    /// All routes.
    All,
    /// All routes except `/metrics`, which another listener serves.
    WithoutMetrics,
    /// `/health`, `/ready`, `/version` and `/metrics`.
    Monitoring,
    /// Nothing: the listener redirects all requests to HTTPS.
    Redirect,
}

impl RouteSet {
    /// Returns the route of a request, as [`route`] does. Routes that are not in the set are
    /// unknown.
    pub fn find(self, request: &Request<'_>, prefix: &str) -> Route {
        if self == RouteSet::Redirect {
            return Route::Redirect;
        }
        let route = route(request, prefix);
        if self.contains(&route) {
            route
        } else {
            Route::Unknown
        }
    }

    fn contains(self, route: &Route) -> bool {
        match (self, route) {
            (RouteSet::All, _) => true,
            (RouteSet::WithoutMetrics, route) => *route != Route::Metrics,
            (
                RouteSet::Monitoring,
                Route::Health | Route::Ready | Route::Version | Route::Metrics,
            ) => true,
            (RouteSet::Monitoring | RouteSet::Redirect, _) => false,
        }
    }
}

/// A page about the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrowseQuery {
    /// The whole store.
    Overview,
    /// The paths whose names have a text, as a form encodes it.
    Search(String),
    /// A path.
    Path(HashPart),
}

/// The longest text of a search in characters.
const SEARCH_LEN_MAX: usize = 600;

/// The path whose build log is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogQuery {
    /// A derivation or the output of one.
    Path(StorePath),
    /// The valid path with this hash part.
    HashPart(HashPart),
}

/// Returns the route of a request. Every route begins with `prefix`, which may be empty.
pub fn route(request: &Request<'_>, prefix: &str) -> Route {
    let path = match request.path.strip_prefix(prefix) {
        // Without a slash behind the prefix, the path has another first name.
        Some(path) if path.is_empty() || path.starts_with('/') => path,
        _ => return Route::Unknown,
    };
    // If the URL of a cache ends in a slash, Nix requests paths with two slashes.
    let path = path.trim_start_matches('/');
    // Narinfos are by far the most frequent, so they are checked first.
    if let Some(hash) = path.strip_suffix(".narinfo").and_then(HashPart::parse) {
        let json = request.parameter("json").is_some();
        return Route::NarInfo { hash, json };
    }
    if let Some(name) = path.strip_prefix("nar/") {
        let found = nar_route(name, request).or_else(|| cached_nar_route(name));
        return found.unwrap_or(Route::Unknown);
    }
    let found = match path {
        "" => Some(Route::Root),
        "nix-cache-info" => Some(Route::CacheInfo),
        "pins-info" => Some(Route::PinsInfo),
        "browse" => Some(Route::Browse(match request.parameter("q") {
            None => BrowseQuery::Overview,
            Some(text) => BrowseQuery::Search(text.chars().take(SEARCH_LEN_MAX).collect()),
        })),
        "health" => Some(Route::Health),
        "ready" => Some(Route::Ready),
        "version" => Some(Route::Version),
        "metrics" => Some(Route::Metrics),
        _ => other_route(path),
    };
    found.unwrap_or(Route::Unknown)
}

fn nar_route(name: &str, request: &Request<'_>) -> Option<Route> {
    let stem = name.strip_suffix(".nar")?;
    let is_nar_hash =
        |text: &str| text.len() == nix32::encoded_len(32) && text.chars().all(nix32::is_digit);
    let (hash, nar_hash) = match stem.split_once('-') {
        Some((hash, nar_hash)) if is_nar_hash(nar_hash) => (hash, Some(nar_hash)),
        Some(_) => return None,
        None if is_nar_hash(stem) => (request.parameter("hash")?, Some(stem)),
        None => (stem, None),
    };
    Some(Route::Nar {
        hash: HashPart::parse(hash)?,
        nar_hash: nar_hash.map(str::to_owned),
    })
}

/// Returns the route of a file in a binary cache, whose name no NAR of the store has.
fn cached_nar_route(name: &str) -> Option<Route> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+=".contains(&byte);
    let is_name = name.len() <= NAME_LEN_MAX && name.contains(".nar") && name.bytes().all(is_valid);
    // The names of files that are being written begin with a dot.
    (is_name && !name.starts_with('.')).then(|| Route::CachedNar(name.to_owned()))
}

/// The longest name of a file that most file systems take, with room for a suffix, in bytes.
const NAME_LEN_MAX: usize = 200;

fn other_route(path: &str) -> Option<Route> {
    if let Some(hash) = path.strip_suffix(".ls") {
        return HashPart::parse(hash).map(Route::Listing);
    }
    let (first, rest) = path.split_once('/')?;
    match first {
        "log" => {
            let query = match StorePath::parse(rest) {
                Ok(path) => LogQuery::Path(path),
                Err(_) => LogQuery::HashPart(HashPart::parse(rest)?),
            };
            Some(Route::Log(query))
        }
        "serve" => {
            let (hash, path) = rest.split_once('/').unwrap_or((rest, ""));
            Some(Route::File {
                hash: HashPart::parse(hash)?,
                path: path.trim_matches('/').into(),
            })
        }
        "browse" if rest.is_empty() => Some(Route::Browse(BrowseQuery::Overview)),
        "browse" => {
            let part = rest.split('-').next().and_then(HashPart::parse)?;
            Some(Route::Browse(BrowseQuery::Path(part)))
        }
        "pins" => (rest.is_empty() || is_pin_name(rest)).then(|| Route::Pin(rest.into())),
        "realisations" | "build-trace-v2" => {
            let id = DrvOutput::from_object_name(path)?;
            Some(Route::Realisation(id))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::HEAD_LEN_MAX;
    use crate::http::request::Parsed;

    const HASH: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";
    const NAR_HASH: &str = "1hsqqvfv8bgg5jmzcx4wrnmllcw0w43cjhl1b0xb51wdq4kxrv1z";

    fn find(target: &str) -> Route {
        find_below(target, "")
    }

    fn find_below(target: &str, prefix: &str) -> Route {
        let head = format!("GET {target} HTTP/1.0\r\n\r\n");
        match Request::parse(head.as_bytes(), HEAD_LEN_MAX) {
            Parsed::Head(request, _) => route(&request, prefix),
            other => panic!("{target}: {other:?}"),
        }
    }

    fn hash() -> HashPart {
        HashPart::parse(HASH).unwrap()
    }

    #[test]
    fn narinfo_route_requires_an_exact_hash_part() {
        let narinfo = |json| Route::NarInfo { hash: hash(), json };
        assert_eq!(find(&format!("/{HASH}.narinfo")), narinfo(false));
        assert_eq!(find(&format!("//{HASH}.narinfo?x=1")), narinfo(false));
        assert_eq!(find(&format!("/{HASH}.narinfo?json")), narinfo(true));
        let upper = HASH.to_uppercase();
        for text in [
            "",
            "7bw2",
            &HASH[1..],
            &format!("{HASH}a"),
            &upper,
            &HASH.replace('b', "e"),
        ] {
            assert_eq!(find(&format!("/{text}.narinfo")), Route::Unknown, "{text}");
        }
    }

    #[test]
    fn nar_route_accepts_all_three_url_forms() {
        let nar = |nar_hash: Option<&str>| Route::Nar {
            hash: hash(),
            nar_hash: nar_hash.map(str::to_owned),
        };
        assert_eq!(
            find(&format!("/nar/{HASH}-{NAR_HASH}.nar")),
            nar(Some(NAR_HASH))
        );
        assert_eq!(
            find(&format!("/nar/{NAR_HASH}.nar?hash={HASH}")),
            nar(Some(NAR_HASH))
        );
        assert_eq!(find(&format!("/nar/{HASH}.nar")), nar(None));
        for text in [
            "../etc/passwd".into(),
            "../x.nar".into(),
            ".x.nar".into(),
            "a/b.nar".into(),
            "a%2fb.nar".into(),
            "a%00.nar".into(),
            format!("{}.nar", "a".repeat(200)),
        ] {
            assert_eq!(find(&format!("/nar/{text}")), Route::Unknown, "{text}");
        }
        for text in [
            format!("{NAR_HASH}.nar"),
            format!("{HASH}.nar.xz"),
            format!("{HASH}-{HASH}.nar"),
        ] {
            let expected = Route::CachedNar(text.clone());
            assert_eq!(find(&format!("/nar/{text}")), expected, "{text}");
        }
    }

    #[test]
    fn remaining_routes_are_parsed() {
        assert_eq!(find("/"), Route::Root);
        assert_eq!(find("/nix-cache-info"), Route::CacheInfo);
        assert_eq!(find(&format!("/{HASH}.ls")), Route::Listing(hash()));
        let path = StorePath::parse(&format!("{HASH}-x.drv")).unwrap();
        let log = Route::Log(LogQuery::Path(path.clone()));
        assert_eq!(find(&format!("/log/{path}")), log);
        assert_eq!(
            find(&format!("/log/{HASH}")),
            Route::Log(LogQuery::HashPart(hash()))
        );
        assert_eq!(find("/log/../x"), Route::Unknown);
        let file = |path: &str| Route::File {
            hash: hash(),
            path: path.into(),
        };
        assert_eq!(find(&format!("/serve/{HASH}/bin/a%20b")), file("bin/a b"));
        assert_eq!(find(&format!("/serve/{HASH}")), file(""));
        let hash = "0".repeat(64);
        let realisation = |id: &str| Route::Realisation(DrvOutput::parse(id).unwrap());
        assert_eq!(
            find(&format!("/realisations/sha256:{hash}!out.doi")),
            realisation(&format!("sha256:{hash}!out"))
        );
        assert_eq!(
            find(&format!("/build-trace-v2/{HASH}-x.drv/out.doi")),
            realisation(&format!("{HASH}-x.drv^out"))
        );
        assert_eq!(find("/realisations/sha256:abc!out.doi"), Route::Unknown);
        assert_eq!(
            find(&format!("/build-trace-v2/{HASH}-x/out.doi")),
            Route::Unknown
        );
    }

    #[test]
    fn monitoring_routes_have_exact_paths() {
        for (target, expected) in [
            ("/health", Route::Health),
            ("/ready?verbose", Route::Ready),
            ("/version", Route::Version),
            ("//metrics", Route::Metrics),
            ("/metrics/", Route::Unknown),
            ("/healthz", Route::Unknown),
        ] {
            assert_eq!(find(target), expected, "{target}");
        }
        assert_eq!(find_below("/cache/metrics", "/cache"), Route::Metrics);
        assert_eq!(find_below("/metrics", "/cache"), Route::Unknown);
    }

    #[test]
    fn route_sets_share_all_but_metrics_and_the_cache() {
        for (route, sets) in [
            (Route::Metrics, [true, false, true]),
            (Route::Ready, [true, true, true]),
            (Route::CacheInfo, [true, true, false]),
            (Route::Unknown, [true, true, false]),
        ] {
            let all = [
                RouteSet::All,
                RouteSet::WithoutMetrics,
                RouteSet::Monitoring,
            ];
            assert_eq!(all.map(|set| set.contains(&route)), sets, "{route:?}");
        }
    }

    #[test]
    fn path_prefix_is_required_and_stripped() {
        assert_eq!(
            find_below("/cache/nix-cache-info", "/cache"),
            Route::CacheInfo
        );
        assert_eq!(find_below("/cache", "/cache"), Route::Root);
        assert_eq!(find_below("/nix-cache-info", "/cache"), Route::Unknown);
        assert_eq!(find_below("/cachenix-cache-info", "/cache"), Route::Unknown);
    }

    proptest! {
        #[test]
        fn any_path_is_routed_without_panic(path in "/[!-~]{0,80}") {
            let head = format!("GET {path} HTTP/1.0\r\n\r\n");
            if let Parsed::Head(request, _) = Request::parse(head.as_bytes(), HEAD_LEN_MAX) {
                let _: Route = route(&request, "");
            }
        }
    }
}
