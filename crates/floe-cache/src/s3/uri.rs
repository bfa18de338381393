//! The URI of a binary cache in a bucket, and its storage, whose client gets its signer here: the
//! `Dialect` of S3.

use std::fmt;
use std::sync::Arc;

use floe_transfer::store_uri::percent_decode_text;
use floe_transfer::url::parse_url;
use floe_transfer::{
    Error, IgnoredParameter, NamedObjects, OpenTarget, Session, Source, SourceContext, StoreConfig,
    StoreFacts, StoreUri, TargetContext, UriContext,
};
use object_store::aws::AmazonS3Builder;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::connector::{Connector, no_retries};
use super::credentials::Credentials;
use super::deletion::BucketDeletion;
use super::list::BucketList;
use super::multipart::BucketPut;
use super::options::S3Options;
use super::signer::{S3Signer, encode_name};
use crate::binary_cache::{BinaryCache, CacheOptions};
use crate::disk_cached_storage::DiskCachedStorage;
use crate::http::{ContentEncodings, HttpStorage, PlainPut};
use crate::network::Network;
use crate::request::{CacheClient, RequestOptions};
use crate::storage::ReadStorage as _;
use crate::uri_parameter::visit_parameters;
use crate::writer::{BinaryCacheWriter, CacheWriteOptions};

/// A binary cache in a bucket, as its URI describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3CacheUri {
    /// The name of the bucket.
    pub bucket: String,
    /// The prefix of the names of all objects: empty, or with a slash at its end.
    pub prefix: String,
    /// Where the bucket is.
    pub s3: S3Options,
    /// The options of the cache as a source.
    pub options: CacheOptions,
    /// The options of the cache as a target.
    pub write: CacheWriteOptions,
    /// The compressions of small objects of the cache as a target.
    pub encodings: ContentEncodings,
    /// The options of requests to this cache.
    pub requests: RequestOptions,
    /// The parameters without effect that the user should know of.
    pub ignored: Vec<IgnoredParameter>,
}

impl S3CacheUri {
    /// Reads the parts of an `s3://` URI, with Nix's parameters. `context` has defaults.
    ///
    /// Errors: the text says which part is wrong.
    pub fn parse(uri: &StoreUri, context: &UriContext) -> Result<S3CacheUri, String> {
        let (bucket, prefix) = match uri.address.split_once('/') {
            Some((bucket, prefix)) => (bucket, percent_decode_text(prefix.trim_matches('/'))?),
            None => (uri.address.as_str(), String::new()),
        };
        let is_name = |part: &str| {
            let has_control = part.chars().any(char::is_control);
            !["", ".", ".."].contains(&part) && !part.contains('#') && !has_control
        };
        if !prefix.is_empty() && !prefix.split('/').all(is_name) {
            return Err(format!(
                "the prefix {prefix:?} has an empty or special part"
            ));
        }
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_valid) {
            return Err("a bucket follows ://; use s3://BUCKET or s3://BUCKET/PREFIX".into());
        }
        let mut cache = S3CacheUri {
            bucket: bucket.to_owned(),
            prefix: if prefix.is_empty() {
                prefix
            } else {
                prefix + "/"
            },
            write: CacheWriteOptions::defaults(uri, context),
            ..S3CacheUri::default()
        };
        cache.ignored = visit_parameters(uri, |parameter| {
            cache.s3.visit(parameter)?;
            cache.options.visit(parameter)?;
            cache.write.visit(parameter)?;
            cache.encodings.visit(parameter)?;
            cache.requests.visit(parameter)
        })?;
        cache.write.complete(&cache.options, context);
        cache.s3.bucket_url(bucket, DEFAULT_REGION)?;
        Ok(cache)
    }

    /// Makes the storage of the cache; sends nothing yet.
    ///
    /// Errors: [`CacheError::Credentials`](crate::CacheError::Credentials) for unusable files and
    /// variables, [`Error::InvalidStoreUri`].
    pub fn storage(&self, network: &Network) -> Result<HttpStorage, Error> {
        let invalid = |reason| Error::InvalidStoreUri {
            text: self.to_string(),
            reason,
        };
        let aws = &network.shared.options.services;
        let profile = self.s3.profile.as_deref();
        let (credentials, region) = Credentials::find(aws, (profile, self.s3.is_amazon()))?;
        let region = self.s3.region.clone().or(region);
        let region = region.map_or_else(|| DEFAULT_REGION.into(), |it| it.trim().to_owned());
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if region.is_empty() || !region.bytes().all(is_part) {
            return Err(invalid(format!("{region:?} is not a region")));
        }
        let bucket = self.s3.bucket_url(&self.bucket, &region).map_err(invalid)?;
        let url = format!("{bucket}/{}", encode_name(&self.prefix));
        let url = url.trim_end_matches('/');
        let mut client = CacheClient::new(network, &self.requests, None)?;
        // No server gets the user's logins.
        client.netrc = None;
        let signer = S3Signer {
            credentials,
            region,
            bucket: parse_url(&bucket)?,
            connector: Connector(client.clone().into()),
        };
        client.dialect = Some(Arc::new(signer));
        let storage = HttpStorage::with_client(url, client)?;
        let shared = storage.shared().clone();
        let store = AmazonS3Builder::new()
            .with_http_connector(Connector(shared.client.clone()))
            .with_retry(no_retries())
            // floe signs all requests itself.
            .with_skip_signature(true)
            .with_allow_http(true)
            .with_endpoint(bucket)
            .with_virtual_hosted_style_request(true)
            .with_bucket_name(&self.bucket)
            .build();
        let store = Arc::new(store.map_err(|error| invalid(error.to_string()))?);
        let class = self.s3.storage_class.clone();
        let mut headers = HeaderMap::new();
        if let Some(class) = &class {
            let value = HeaderValue::from_str(class);
            let value = value.map_err(|error| invalid(format!("storage-class: {error}")))?;
            headers.insert(STORAGE_CLASS, value);
        }
        let put = BucketPut {
            small: PlainPut::new(shared.clone(), headers, self.encodings.clone()),
            store: store.clone(),
            shared: shared.clone(),
            prefix: self.prefix.clone(),
            url: url.to_owned(),
            storage_class: class,
            chunk_len: self.s3.chunk_len,
        };
        let list = BucketList {
            store: store.clone(),
            prefix: self.prefix.clone(),
            shared,
        };
        let deletion = BucketDeletion::new(store, self.prefix.clone());
        Ok(storage.with_object_store(Arc::new(put), Arc::new(list), Arc::new(deletion)))
    }
}

impl StoreConfig for S3CacheUri {
    fn facts(&self) -> StoreFacts<'_> {
        StoreFacts {
            is_trusted: self.options.trusted,
            secret_key_files: &self.write.secret_keys,
            ignored_parameters: &self.ignored,
            ..StoreFacts::default()
        }
    }

    /// Another endpoint may have a bucket of this name.
    fn address(&self) -> String {
        match &self.s3.endpoint {
            Some(endpoint) => format!("{self}?endpoint={endpoint}"),
            None => self.to_string(),
        }
    }

    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let network = context.session.service::<Network>()?;
        let storage = self.storage(&network)?;
        // Another endpoint may have a bucket of this name.
        let url = storage.name();
        let storage = DiskCachedStorage::wrap(storage, context.session, &url)?;
        Ok(Arc::new(BinaryCache::open(storage, &self.options, context)))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        let network = context.session.service::<Network>()?;
        let storage = Arc::new(self.storage(&network)?);
        BinaryCacheWriter::open_target(storage, &self.write, context)
    }

    fn open_objects(&self, session: &Session) -> Result<Option<Arc<dyn NamedObjects>>, Error> {
        let network = session.service::<Network>()?;
        Ok(Some(Arc::new(self.storage(&network)?)))
    }
}

impl fmt::Display for S3CacheUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("s3://{}/{}", self.bucket, self.prefix);
        f.write_str(name.trim_end_matches('/'))
    }
}

/// Nix's default.
const DEFAULT_REGION: &str = "us-east-1";

const STORAGE_CLASS: HeaderName = HeaderName::from_static("x-amz-storage-class");
