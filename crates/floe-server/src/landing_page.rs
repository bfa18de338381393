//! The page for people: how to use this cache, as HTML and as text.
//!
//! The page says nothing about the contents of the store, and has no scripts.

use std::sync::Arc;

use floe_format::StoreDir;

use crate::config::Config;
use crate::html::{self, escaped};

/// The facts on the page, apart from the address.
#[derive(Debug)]
pub(crate) struct LandingPage {
    store_dir: StoreDir,
    /// The public keys of the server.
    keys: Vec<String>,
    /// Whether browsers get it as text, too.
    pub(crate) is_plain: bool,
    /// Whether all who may read may also browse, so that the page has a link.
    can_browse: bool,
    /// The prefix of every route.
    prefix: String,
}

impl LandingPage {
    /// Returns the page of a server, unless it has none.
    pub(crate) fn of(config: &Config, store_dir: &StoreDir) -> Option<Arc<LandingPage>> {
        let keys = config
            .secret_keys
            .iter()
            .map(|key| key.public().to_string());
        let page = || LandingPage {
            store_dir: store_dir.clone(),
            keys: keys.collect(),
            is_plain: config.plain_landing_page,
            can_browse: config.status_browse,
            prefix: config.path_prefix.clone(),
        };
        (!config.no_landing_page).then(|| Arc::new(page()))
    }

    /// Returns the page as text.
    pub(crate) fn text(&self, url: &str) -> String {
        let dir = &self.store_dir;
        let mut text = format!("This is a binary cache for Nix, of the store directory {dir}.\n");
        text.push_str("To use it, add this to nix.conf");
        if !self.keys.is_empty() {
            text.push_str(", if you trust its operator");
        }
        text.push_str(":\n\n");
        for line in self.nix_conf(url).lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text
    }

    /// Returns the page as HTML.
    pub(crate) fn html(&self, url: &str) -> String {
        let (keys, conf, nixos) = (&self.keys, self.nix_conf(url), self.nixos(url));
        let trust = match keys.len() {
            0 => {
                "The server signs nothing. Clients accept a path if they trust another key that \
                  has signed it."
            }
            1 => "Clients that trust this key accept every path of this cache.",
            _ => "Clients that trust one of these keys accept every path of this cache.",
        };
        let mut page = String::with_capacity(4096);
        page.push_str(&format!(
            "<h1>Nix binary cache</h1>\n<p>This server has paths of <code>{}</code>, ready to be \
             installed by Nix, floe and other clients.</p>\n",
            escaped(self.store_dir.as_str())
        ));
        let block = |title: &str, words: &str, text: &str| {
            let text = escaped(text);
            format!("<h2>{title}</h2>\n<p>{words}</p>\n{PRE}{text}</code></pre>\n")
        };
        page.push_str(&block(
            "With Nix",
            "Add this to <code>nix.conf</code>.",
            &conf,
        ));
        page.push_str(&block(
            "With NixOS",
            "Add this to the configuration.",
            &nixos,
        ));
        page.push_str(&block(
            "With a flake",
            "Add this to <code>flake.nix</code>. Nix asks before it uses the cache.",
            &self.flake(url),
        ));
        page.push_str(&block(
            "For one command",
            "Fetch a path without a change of the configuration, as a user whom Nix trusts.",
            &self.nix_store(url),
        ));
        page.push_str(&block(
            "With floe",
            "Install a path with everything that it needs, also on a machine without Nix.",
            &self.floe(url),
        ));
        page.push_str(&format!("<h2>Signatures</h2>\n<p>{trust}</p>\n"));
        if !keys.is_empty() {
            let keys: String = keys
                .iter()
                .map(|key| format!("{}\n", escaped(key)))
                .collect();
            page.push_str(&format!("{PRE}{keys}</code></pre>\n"));
        }
        if self.can_browse {
            page.push_str(&format!(
                "<p><a href=\"{}/browse\">Look at the paths of this cache</a></p>\n",
                escaped(&self.prefix)
            ));
        }
        html::page("Nix binary cache", &page)
    }

    fn nix_conf(&self, url: &str) -> String {
        let mut text = format!("extra-substituters = {url}\n");
        if !self.keys.is_empty() {
            let keys = self.keys.join(" ");
            text.push_str(&format!("extra-trusted-public-keys = {keys}\n"));
        }
        text
    }

    fn nixos(&self, url: &str) -> String {
        self.attributes("nix.settings", "", url)
    }

    fn flake(&self, url: &str) -> String {
        self.attributes("nixConfig", "extra-", url)
    }

    /// The settings as attributes in Nix's language.
    fn attributes(&self, set: &str, prefix: &str, url: &str) -> String {
        let mut text = format!("{set} = {{\n  {prefix}substituters = [ \"{url}\" ];\n");
        if !self.keys.is_empty() {
            let keys: Vec<String> = self.keys.iter().map(|key| format!("\"{key}\"")).collect();
            let keys = keys.join(" ");
            text.push_str(&format!("  {prefix}trusted-public-keys = [ {keys} ];\n"));
        }
        text.push_str("};\n");
        text
    }

    fn nix_store(&self, url: &str) -> String {
        let mut text = format!("nix-store --option extra-substituters {url} \\\n");
        if !self.keys.is_empty() {
            let keys = self.keys.join(" ");
            let option = "--option extra-trusted-public-keys";
            text.push_str(&format!("    {option} '{keys}' \\\n"));
        }
        text.push_str(&format!("    --realise {}/HASH-NAME\n", self.store_dir));
        text
    }

    fn floe(&self, url: &str) -> String {
        let keys = self.keys.join(" ");
        let keys = if self.keys.is_empty() {
            String::new()
        } else {
            format!(" \\\n    --trusted-public-keys '{keys}'")
        };
        format!(
            "floe install --from {url}{keys} \\\n    {}/HASH-NAME\n",
            self.store_dir
        )
    }
}

const PRE: &str = "<pre><code>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_no_untrusted_text() {
        let page = LandingPage {
            store_dir: StoreDir::default(),
            keys: vec!["<script>\"a\"&'b'-1:AAAA".into()],
            is_plain: false,
            can_browse: false,
            prefix: String::new(),
        };
        let html = page.html("https://h/<b>");
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        let escaped = "&lt;script&gt;&quot;a&quot;&amp;&#39;b&#39;-1:AAAA";
        assert!(html.matches(escaped).count() >= 3, "{html}");
        assert!(html.contains("extra-substituters = https://h/&lt;b&gt;"));
    }

    #[test]
    fn page_without_keys_names_none() {
        let page = LandingPage {
            store_dir: StoreDir::default(),
            keys: Vec::new(),
            is_plain: false,
            can_browse: false,
            prefix: String::new(),
        };
        for text in [page.html("http://h"), page.text("http://h")] {
            assert!(!text.contains("trusted-public-keys"), "{text}");
        }
    }
}
