//! The URI of a binary cache behind HTTP or HTTPS.

use std::fmt;
use std::sync::Arc;

use floe_transfer::store_uri::absolute;
use floe_transfer::url::redact_credentials;
use floe_transfer::{
    Error, IgnoredParameter, NamedObjects, OpenTarget, Session, Source, SourceContext, StoreConfig,
    StoreFacts, StoreUri, TargetContext, UriContext,
};

use super::{ContentEncodings, HttpStorage};
use crate::binary_cache::{BinaryCache, CacheOptions};
use crate::disk_cached_storage::DiskCachedStorage;
use crate::network::{ClientCertificate, Network};
use crate::request::RequestOptions;
use crate::uri_parameter::visit_parameters;
use crate::writer::{BinaryCacheWriter, CacheWriteOptions};

/// A binary cache behind HTTP or HTTPS, as its URI describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCacheUri {
    /// The URL, without a slash at the end.
    pub url: String,
    /// The options of the cache as a source.
    pub options: CacheOptions,
    /// The options of the cache as a target.
    pub write: CacheWriteOptions,
    /// The client certificate for the server (`tls-certificate`, `tls-private-key`).
    pub certificate: Option<ClientCertificate>,
    /// The compressions of small objects of the cache as a target.
    pub encodings: ContentEncodings,
    /// The options of requests to this cache.
    pub requests: RequestOptions,
    /// The parameters without effect that the user should know of.
    pub ignored: Vec<IgnoredParameter>,
}

impl HttpCacheUri {
    /// Reads the parts of an `http://` or `https://` URI, with Nix's parameters. `context` has
    /// defaults.
    ///
    /// Errors: the text says which part is wrong.
    pub fn parse(uri: &StoreUri, context: &UriContext) -> Result<HttpCacheUri, String> {
        let address = uri.address.trim_end_matches('/');
        if address.is_empty() || address.starts_with('/') || address.contains('#') {
            return Err("it has no host, or it has a fragment".into());
        }
        let mut cache = HttpCacheUri {
            url: format!("{}://{address}", uri.scheme),
            options: CacheOptions::default(),
            write: CacheWriteOptions::defaults(uri, context),
            encodings: ContentEncodings::default(),
            certificate: None,
            requests: RequestOptions::default(),
            ignored: Vec::new(),
        };
        let (mut certificate, mut private_key) = (None, None);
        cache.ignored = visit_parameters(uri, |parameter| {
            cache.options.visit(parameter)?;
            cache.write.visit(parameter)?;
            cache.encodings.visit(parameter)?;
            cache.requests.visit(parameter)?;
            let file = |_: &str, value: &str| absolute(value).map(Some);
            parameter.parsed("tls-certificate", &mut certificate, file)?;
            parameter.parsed("tls-private-key", &mut private_key, file)
        })?;
        cache.write.complete(&cache.options, context);
        cache.certificate = match (certificate, private_key) {
            (None, None) => None,
            (None, Some(_)) => return Err("tls-private-key needs tls-certificate".into()),
            // One file may hold both.
            (Some(certificate), private_key) => Some(ClientCertificate {
                private_key: private_key.unwrap_or_else(|| certificate.clone()),
                certificate,
            }),
        };
        Ok(cache)
    }
}

impl HttpCacheUri {
    /// Makes the storage of the cache; sends nothing yet.
    fn storage(&self, network: &Network) -> Result<HttpStorage, Error> {
        let certificate = self.certificate.as_ref();
        HttpStorage::new(&self.url, certificate, &self.requests, network)
    }
}

impl StoreConfig for HttpCacheUri {
    fn facts(&self) -> StoreFacts<'_> {
        StoreFacts {
            is_trusted: self.options.trusted,
            server_may_sign: true,
            secret_key_files: &self.write.secret_keys,
            ignored_parameters: &self.ignored,
            ..StoreFacts::default()
        }
    }

    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let network = context.session.service::<Network>()?;
        let (storage, url) = (self.storage(&network)?, self.to_string());
        let storage = DiskCachedStorage::wrap(storage, context.session, &url)?;
        Ok(Arc::new(BinaryCache::open(storage, &self.options, context)))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        let network = context.session.service::<Network>()?;
        let storage = self.storage(&network)?;
        let storage = storage.with_encodings(self.encodings.clone());
        BinaryCacheWriter::open_target(Arc::new(storage), &self.write, context)
    }

    fn open_objects(&self, session: &Session) -> Result<Option<Arc<dyn NamedObjects>>, Error> {
        let network = session.service::<Network>()?;
        Ok(Some(Arc::new(self.storage(&network)?)))
    }
}

impl fmt::Display for HttpCacheUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_credentials(&self.url))
    }
}
