//! Texts of responses: constant, owned or shared.

use std::sync::Arc;

/// A text that is a constant, belongs to one response, or is shared by many.
#[derive(Debug)]
pub(crate) enum Text {
    Static(&'static str),
    Owned(String),
    Shared(Arc<str>),
}

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Text::Static(text) => text,
            Text::Owned(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Text {
        Text::Static(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::Owned(text)
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Text {
        Text::Shared(text)
    }
}
