//! Lists the objects of a bucket, a page of up to 1,000 names at a time.

use std::fmt::Debug;
use std::sync::Arc;

use floe_transfer::{Cancel, Error};
use object_store::list::{PaginatedListOptions, PaginatedListStore};

use super::connector::{Cause, is_word};
use crate::error::CacheError;
use crate::http::{HttpCacheShared, ReplyGuard};
use crate::storage::{Folder, ListPage, ListStorage, ListedObject, Replies};

/// Lists the objects of a cache, below its prefix.
#[derive(Debug)]
pub(crate) struct BucketList<S> {
    pub(crate) store: Arc<S>,
    /// Empty, or with a slash at its end.
    pub(crate) prefix: String,
    pub(crate) shared: Arc<HttpCacheShared>,
}

impl<S: PaginatedListStore + Debug> ListStorage for BucketList<S> {
    fn list_page(
        &self,
        folder: Folder,
        after: Option<&str>,
        cancel: &Cancel,
    ) -> Result<ListPage, Error> {
        let mut replies = Replies::new(cancel);
        let reply = ReplyGuard::new(replies.callback(|page| page));
        let (store, prefix, name) = (self.store.clone(), self.prefix.clone(), self.name());
        let (after, own_url) = (after.map(str::to_owned), name.clone());
        self.shared.spawn(async move {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token: after,
                ..PaginatedListOptions::default()
            };
            let below = format!("{prefix}{}", folder.prefix());
            let listed = store.list_paginated(Some(&below), options).await;
            let page = listed.map_err(|error| {
                let Cause { reason, .. } = error.into();
                Error::from(CacheError::List { url: name, reason })
            });
            let page = page.and_then(|page| match &page.page_token {
                // object_store would panic.
                Some(token) if !is_word(token.as_bytes()) => Err(Error::from(CacheError::List {
                    url: own_url,
                    reason: "the server names the next page by a text that no URL can have".into(),
                })),
                _ => Ok(page),
            });
            let page = page.map(|page| ListPage {
                objects: page
                    .result
                    .objects
                    .into_iter()
                    .filter_map(|object| {
                        let name = object.location.as_ref().strip_prefix(&prefix)?;
                        Some(ListedObject {
                            name: name.to_owned(),
                            len: Some(object.size),
                            modified: Some(object.last_modified.into()),
                        })
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
