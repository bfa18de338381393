//! Commands with places in them: `nix copy --from {from} --to {dest} {path}`.

use crate::error::BenchError;

/// A command with places, split into words as a shell would, but run without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    words: Vec<String>,
}

/// What the places of a template stand for.
#[derive(Clone, Debug)]
pub struct Placeholders<'a> {
    /// `{from}`: where paths come from.
    pub from: &'a str,
    /// `{dest}`: the directory that takes them, which does not exist yet.
    pub dest: &'a str,
    /// `{path}`: what is copied. A word that is nothing else becomes a word for each.
    pub paths: &'a [String],
}

impl Template {
    /// Splits a command line.
    ///
    /// Errors: an open quote, no words, a place that is none, or no `{dest}`: a command that is
    /// not told where to write would write elsewhere.
    pub fn parse(text: &str) -> Result<Template, BenchError> {
        let fault = |reason: String| BenchError::Template {
            text: text.to_owned(),
            reason,
        };
        let words = shell_words::split(text).map_err(|error| fault(error.to_string()))?;
        let template = Template { words };
        if template.words.is_empty() {
            return Err(fault("there is no program".into()));
        }
        if let Some(name) = template
            .words
            .iter()
            .find_map(|word| unknown_placeholder(word))
        {
            return Err(fault(format!(
                "there is no place {{{name}}}; the places are {{from}}, {{dest}} and {{path}}"
            )));
        }
        for place in [DEST, PATH] {
            if !template.words.iter().any(|word| word.contains(place)) {
                return Err(fault(format!("it lacks {place}")));
            }
        }
        Ok(template)
    }

    /// A command that is already in words.
    pub fn from_arguments(words: impl IntoIterator<Item = impl Into<String>>) -> Template {
        Template {
            words: words.into_iter().map(Into::into).collect(),
        }
    }

    /// The words of the command with its places filled in.
    pub fn fill(&self, places: &Placeholders<'_>) -> Vec<String> {
        let mut filled = Vec::new();
        for word in &self.words {
            if word == PATH {
                filled.extend(places.paths.iter().cloned());
                continue;
            }
            filled.push(
                word.replace(FROM, places.from)
                    .replace(DEST, places.dest)
                    .replace(PATH, &places.paths.join(" ")),
            );
        }
        filled
    }

    /// The program.
    pub fn program(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The words as they were given.
    pub fn arguments(&self) -> &[String] {
        &self.words
    }

    /// The command as a shell would take it.
    pub fn text(&self) -> String {
        shell_words::join(&self.words)
    }
}

/// The name between braces that is no place. Braces around anything but a word of lowercase
/// letters belong to somebody else.
fn unknown_placeholder(word: &str) -> Option<&str> {
    word.split('{').skip(1).find_map(|rest| {
        let (name, _) = rest.split_once('}')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        (is_name && !["from", "dest", "path"].contains(&name)).then_some(name)
    })
}

const FROM: &str = "{from}";
const DEST: &str = "{dest}";
const PATH: &str = "{path}";

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Vec<String> {
        let paths = ["/nix/store/a".to_owned(), "/nix/store/b".to_owned()];
        let places = Placeholders {
            from: "file:///a b",
            dest: "/d",
            paths: &paths,
        };
        Template::parse(text).unwrap().fill(&places)
    }

    #[test]
    fn places_are_filled_without_a_shell() {
        assert_eq!(
            fill("'my nix' copy --from {from} --to=local?root={dest} {path}"),
            [
                "my nix",
                "copy",
                "--from",
                "file:///a b",
                "--to=local?root=/d",
                "/nix/store/a",
                "/nix/store/b"
            ]
        );
    }

    #[test]
    fn a_command_that_is_not_told_where_to_write_is_refused() {
        for (text, reason) in [
            ("", "no program"),
            ("nix copy {path}", "lacks {dest}"),
            ("nix copy --to {dest}", "lacks {path}"),
            ("nix copy --to {dest} {paths}", "no place {paths}"),
            ("nix 'copy", "quote"),
        ] {
            let error = Template::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn braces_that_are_no_places_are_left_alone() {
        assert_eq!(fill("awk '{ print $1 }' {dest} {path}")[1], "{ print $1 }");
    }
}
