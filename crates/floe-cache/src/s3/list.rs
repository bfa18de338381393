//! Lists the objects of a bucket, a page of up to 1,000 names at a time.

use std::fmt::Debug;
use std::sync::Arc;

use floe_transfer::{Cancel, Error};
use object_store::list::{PaginatedListOptions, PaginatedListStore};

use super::connector::Cause;
use crate::error::CacheError;
use crate::http::{HttpCacheShared, ReplyGuard};
use crate::storage::{ListPage, ListStorage, Replies};

/// Lists the objects directly below the prefix of a cache.
#[derive(Debug)]
pub(crate) struct BucketList<S> {
    pub(crate) store: Arc<S>,
    /// Empty, or with a slash at its end.
    pub(crate) prefix: String,
    pub(crate) shared: Arc<HttpCacheShared>,
}

impl<S: PaginatedListStore + Debug> ListStorage for BucketList<S> {
    fn list_page(&self, after: Option<&str>, cancel: &Cancel) -> Result<ListPage, Error> {
        let mut replies = Replies::new(cancel);
        let reply = ReplyGuard::new(replies.callback(|page| page));
        let (store, prefix, name) = (self.store.clone(), self.prefix.clone(), self.name());
        let after = after.map(str::to_owned);
        self.shared.spawn(async move {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token: after,
                ..PaginatedListOptions::default()
            };
            let listed = store.list_paginated(Some(&prefix), options).await;
            let page = listed.map_err(|error| {
                let Cause { reason, .. } = error.into();
                Error::from(CacheError::List { url: name, reason })
            });
            let page = page.map(|page| ListPage {
                names: page
                    .result
                    .objects
                    .into_iter()
                    .filter_map(|object| {
                        let name = object.location.as_ref().strip_prefix(&prefix)?;
                        Some(name.to_owned())
                    })
                    .collect(),
                next: page.page_token,
            });
            reply.send(page);
        });
        replies.only()?
    }
}

impl<S> BucketList<S> {
    fn name(&self) -> String {
        floe_transfer::url::redact(&self.shared.base)
    }
}
