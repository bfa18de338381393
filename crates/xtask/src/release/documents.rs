//! The documents and examples of every package, with links that work there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Parser, Tag};

/// Documents and examples, by their places below the directory of the documents.
pub(super) type Documents = BTreeMap<String, Vec<u8>>;

/// Reads the documents of the repository.
pub(super) fn documents(root: &Path) -> Result<Documents> {
    let places = places(root)?;
    let mut documents = Documents::new();
    for (file, place) in &places {
        let path = root.join(file);
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let text = if file.ends_with(".md") {
            with_links_of_package(&text, file, &places)
        } else {
            text
        };
        documents.insert(place.clone(), text.into_bytes());
    }
    Ok(documents)
}

/// The places of the files of the repository that belong to every package.
type Places = BTreeMap<String, String>;

fn places(root: &Path) -> Result<Places> {
    let mut places = Places::new();
    for file in ["README.md", "CHANGELOG.md", "SECURITY.md"] {
        places.insert(file.to_owned(), file.to_owned());
    }
    for file in EXAMPLES {
        let name = file.rsplit('/').next().unwrap_or(file);
        places.insert((*file).to_owned(), format!("examples/{name}"));
    }
    let directory = root.join("docs");
    let context = || format!("cannot read {}", directory.display());
    for entry in fs::read_dir(&directory).with_context(context)? {
        let name = entry.with_context(context)?.file_name();
        let name = name.to_str().context("a file name is not UTF-8")?;
        if name.ends_with(".md") {
            places.insert(format!("docs/{name}"), format!("docs/{name}"));
        }
    }
    Ok(places)
}

/// Units, drop-ins, alert rules and the dashboard.
const EXAMPLES: &[&str] = &[
    "packaging/systemd/floe-metrics.socket",
    "packaging/systemd/floe.service",
    "packaging/systemd/floe.socket",
    "packaging/systemd/floe.sysusers",
    "packaging/systemd/internet.conf",
    "packaging/systemd/private-network.conf",
    "packaging/systemd/proxy.conf",
    "packaging/systemd/receive-into-store.conf",
    "packaging/systemd/receive.conf",
    "docs/monitoring/floe-alerts.yml",
    "docs/monitoring/floe-dashboard.json",
];

/// Makes relative links lead to the places in the package. Links to files that a package does not
/// have become their text, and such images are left out.
fn with_links_of_package(text: &str, file: &str, places: &Places) -> String {
    let own_place = places.get(file).map_or(file, String::as_str);
    let mut changed = String::with_capacity(text.len());
    let mut copied = 0;
    for (event, range) in Parser::new(text).into_offset_iter() {
        let (dest_url, is_image) = match event {
            Event::Start(Tag::Link { dest_url, .. }) => (dest_url, false),
            Event::Start(Tag::Image { dest_url, .. }) => (dest_url, true),
            _ => continue,
        };
        let (target, fragment) = dest_url.split_once('#').unwrap_or((&dest_url, ""));
        let link = &text[range.clone()];
        let end_of_words = link.rfind("](");
        if target.is_empty() || target.contains(':') {
            continue;
        }
        let Some(end_of_words) = end_of_words else {
            continue;
        };
        changed.push_str(&text[copied..range.start]);
        copied = range.end;
        let Some(place) = places.get(&resolved(file, target)) else {
            if is_image {
                // With the empty lines after it.
                let rest = &text[copied..];
                copied += rest.len() - rest.trim_start_matches('\n').len();
            } else {
                changed.push_str(link[..end_of_words].trim_start_matches('['));
            }
            continue;
        };
        changed.push_str(&link[..end_of_words]);
        changed.push_str("](");
        changed.push_str(&relative(own_place, place));
        if !fragment.is_empty() {
            changed.push('#');
            changed.push_str(fragment);
        }
        changed.push(')');
    }
    changed.push_str(&text[copied..]);
    changed
}

/// Returns the path in the repository to which a relative link of a file leads.
fn resolved(file: &str, target: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns the relative link from one place to another one.
fn relative(from: &str, to: &str) -> String {
    let up = "../".repeat(from.matches('/').count());
    match (from.rsplit_once('/'), to.rsplit_once('/')) {
        (Some((one, _)), Some((other, name))) if one == other => name.to_owned(),
        _ => format!("{up}{to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn every_relative_link_leads_to_a_file_of_the_package() {
        let documents = documents(&repository()).unwrap();
        let mut links = 0;
        for (place, text) in &documents {
            let text = std::str::from_utf8(text).unwrap();
            if !place.ends_with(".md") {
                continue;
            }
            for event in Parser::new(text) {
                let (Event::Start(Tag::Link { dest_url, .. })
                | Event::Start(Tag::Image { dest_url, .. })) = event
                else {
                    continue;
                };
                let target = dest_url.split('#').next().unwrap();
                if target.is_empty() || target.contains(':') {
                    continue;
                }
                links += 1;
                let target = resolved(place, target);
                assert!(documents.contains_key(&target), "{place}: {dest_url}");
            }
        }
        assert!(links > 60, "{links} links");
    }

    #[test]
    fn links_are_changed_and_all_other_text_stays() {
        let places = places(&repository()).unwrap();
        let text = "See [the unit](../packaging/systemd/floe.service), [a crate](../crates/x),\n\
                    [TLS](operating.md#tls), [here](#here), <https://a.b> and [out](https://a.b).\n\
                    ![Times](../bench/x.svg)\n\n`[code](../crates/x)`\n";
        let expected = "See [the unit](../examples/floe.service), a crate,\n\
                        [TLS](operating.md#tls), [here](#here), <https://a.b> and \
                        [out](https://a.b).\n`[code](../crates/x)`\n";
        assert_eq!(
            with_links_of_package(text, "docs/interface.md", &places),
            expected
        );
        let readme = with_links_of_package("[a](docs/managing.md#b)", "README.md", &places);
        assert_eq!(readme, "[a](docs/managing.md#b)");
    }
}
