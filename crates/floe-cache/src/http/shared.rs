//! The part of an HTTP storage that tasks on the network threads use.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};

use floe_transfer::Error;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::watch;

use super::adaptive_limit::AdaptiveLimit;
use crate::network::OpenUploads;
use crate::network::limiter::RequestPermits;
use crate::request::{
    CacheClient, Message, RATE_WINDOW_MAX, ReplyTime, ReplyWait, Request, RequestTarget,
};

/// The state of one cache: what its requests have shown of it.
#[derive(Debug)]
pub(crate) struct HttpCacheShared {
    /// The URL of the cache.
    pub(crate) base: Url,
    pub(crate) client: Arc<CacheClient>,
    /// How many narinfos may be requested at once. Unset until `nix-cache-info` has come.
    pub(super) query_limit: OnceLock<AdaptiveLimit>,
    /// Queries in a row that failed after all their attempts.
    pub(super) consecutive_failures: AtomicU32,
    /// Writes in a row that failed after all their attempts.
    pub(super) failed_writes: AtomicU32,
    /// The error after which nothing is written any more.
    pub(super) writes_disabled_by: Mutex<Option<Arc<Error>>>,
    /// The error after which no query is sent any more.
    pub(super) disabled_by: OnceLock<Arc<Error>>,
    /// Whether the connections of bodies over HTTP/2 were opened.
    pub(super) has_bulk_connections: AtomicBool,
    /// The usual time of a reply with a small object.
    pub(super) reply_time: ReplyTime,
    /// The usual time until a NAR begins. A server may have to compress it first.
    pub(super) nar_reply_time: ReplyTime,
    /// Whether the transfers of this cache have ended.
    pub(super) is_aborted: watch::Sender<bool>,
}

impl HttpCacheShared {
    /// Returns the count of the uploads that must end before the session does.
    pub(crate) fn open_uploads(&self) -> &OpenUploads {
        &self.client.network.open_uploads
    }

    /// Makes a request for a small object, which has no connection yet.
    pub(super) fn small_request(&self, url: Url) -> Request {
        let timeout = self.client.options.stall_timeout;
        Request {
            target: RequestTarget::of_cache(&self.base, url),
            held: RequestPermits::none(),
            bulk_client: None,
            head_wait: ReplyWait::new(&self.reply_time, timeout),
            rest_wait: ReplyWait::for_rest(&self.reply_time, timeout),
            rate_window: timeout.min(RATE_WINDOW_MAX),
            message: Message::default(),
        }
    }

    /// Runs a task on a network thread until it ends or the transfers of this cache do.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let mut is_aborted = self.is_aborted.subscribe();
        self.client.network.handle.spawn(async move {
            tokio::select! {
                _ = is_aborted.wait_for(|it| *it) => {}
                () = task => {}
            }
        });
    }
}
