//! The target of a request, with its credentials.

use reqwest::Url;

/// The target of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestTarget {
    pub(crate) url: Url,
    /// Whether the URL is that of a server with TLS, or came from one.
    pub(crate) named_over_tls: bool,
}

impl From<Url> for RequestTarget {
    /// Makes the target of a URL that no server has named.
    fn from(url: Url) -> RequestTarget {
        RequestTarget {
            named_over_tls: url.scheme() == "https",
            url,
        }
    }
}

impl RequestTarget {
    /// Makes the target of a URL of a cache, or of one that it named. The latter may be on another
    /// host, as with a redirect.
    pub(crate) fn of_cache(cache: &Url, mut url: Url) -> RequestTarget {
        copy_credentials(cache, &mut url);
        RequestTarget {
            url,
            named_over_tls: cache.scheme() == "https",
        }
    }
}

/// Copies the credentials of the first URL if the other one has the same scheme, host and port.
pub(crate) fn copy_credentials(first: &Url, to: &mut Url) {
    let has_own = !to.username().is_empty() || to.password().is_some();
    if !has_own && to.origin() == first.origin() {
        let _: Result<(), ()> = to.set_username(first.username());
        let _: Result<(), ()> = to.set_password(first.password());
    }
}
