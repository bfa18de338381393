//! Exchanges settings of a running server, and reads its files anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::Config;
use crate::error::ServeError;
use crate::handlers::nix_cache_info::cache_info_text;
use crate::landing_page::LandingPage;
use crate::net::shared::ServerShared;

/// Exchanges settings of a running server, and reads its files anew.
#[derive(Clone)]
pub struct ReloadHandle {
    shared: Arc<ServerShared>,
}

impl ReloadHandle {
    pub(crate) fn new(shared: Arc<ServerShared>) -> ReloadHandle {
        ReloadHandle { shared }
    }

    /// Reads certificates and keys for TLS anew, for new connections, and the logins, for new
    /// requests. Present connections continue.
    ///
    /// The server also takes over those settings of `config` that can change while it runs:
    /// [`Config::secret_keys`], [`Config::priority`], [`Config::limits`], [`Config::public_read`],
    /// [`Config::status_browse`], and [`Config::tls`] if it uses TLS already.
    ///
    /// Errors: [`ServeError`], if a file or a setting cannot be used. Then nothing changes.
    pub fn reload(&self, config: Option<&Config>) -> Result<(), ServeError> {
        config.map(Config::check).transpose()?;
        let options = config.and_then(|config| config.tls.as_ref());
        let tls = self.shared.tls.as_ref();
        let tls = tls.map(|tls| Ok::<_, ServeError>((tls, tls.read_again(options)?)));
        let tls = tls.transpose()?;
        if let Some(queue) = &self.shared.login_queue {
            let has_new_authorities = tls
                .as_ref()
                .is_some_and(|(tls, settings)| tls.has_other_authorities(settings));
            queue.logins().reload(has_new_authorities)?;
        }
        if let Some((tls, settings)) = tls {
            tls.replace(settings, options);
        }
        if let Some(config) = config {
            self.take_over(config);
        }
        self.shared.note_certificates();
        Ok(())
    }

    fn take_over(&self, config: &Config) {
        let context = &self.shared.context;
        let (dir, keys) = (&context.layout.store_dir, &config.secret_keys);
        *context.cache_info.write() = cache_info_text(dir, config.priority).into();
        *context.landing_page.write() = LandingPage::of(config, dir);
        context.narinfos.replace_keys(keys.clone());
        context.readiness.set_keys(keys.len());
        if let Some(receiver) = &context.receiver {
            receiver.replace_keys(keys);
        }
        let browsers = &context.browsers.are_readers;
        browsers.store(config.status_browse, Ordering::Relaxed);
        if let Some(queue) = &self.shared.login_queue {
            queue.logins().set_browsing_readers(config.status_browse);
            let needs_login = !config.public_read;
            queue.logins().set_public_reading(config.public_read);
            context.needs_login.store(needs_login, Ordering::Relaxed);
        }
        self.shared.set_limits(config.limits.clone());
    }
}
