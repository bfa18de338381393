//! `/browse`: pages for people about the store and its paths.

mod overview;
mod path_page;

use std::fmt::Display;

use floe_format::StorePath;
use floe_store::StoreError;

use crate::caches::narinfo_cache::StoreSession;
use crate::context::Context;
use crate::html::{self, escaped};
use crate::http::response::Response;
use crate::http::route::BrowseQuery;

/// Responds with a page. Only a few are made at once, because a search reads the whole database.
pub(crate) fn respond(
    context: &Context,
    query: &BrowseQuery,
    session: &mut StoreSession,
) -> Result<Response, StoreError> {
    let Some(_permit) = context.browsing.acquire(1) else {
        return Ok(Response::text(503, BUSY, "the server is busy; try again\n"));
    };
    let page = match query {
        BrowseQuery::Overview => Some(overview::page(context, session)?),
        BrowseQuery::Search(text) => Some(overview::search_page(context, session, text)?),
        BrowseQuery::Path(part) => path_page::page(context, session, *part)?,
    };
    Ok(match page {
        Some(page) => html::respond(200, FIELDS, page),
        None => {
            let body = format!(
                "{}<p>There is no such path.</p>\n",
                head(context, "Not found", "")
            );
            html::respond(404, FIELDS, html::page("Not found", &body))
        }
    })
}

/// The heading of a page, its links to the others, and a form to search with.
fn head(context: &Context, title: &str, searched: &str) -> String {
    let (prefix, title) = (escaped(&context.prefix), escaped(title));
    format!(
        "<nav><a href=\"{prefix}/\">How to use this cache</a> <a href=\"{prefix}/browse\">Store</a>\
         </nav>\n<h1>{title}</h1>\n{}",
        search_form(context, searched)
    )
}

fn search_form(context: &Context, text: &str) -> String {
    let (prefix, text) = (escaped(&context.prefix), escaped(text));
    format!(
        "<form action=\"{prefix}/browse\" role=\"search\">\n\
         <label for=\"q\">Name or hash of a path</label>\n\
         <input id=\"q\" name=\"q\" type=\"search\" maxlength=\"200\" value=\"{text}\">\n\
         <button>Search</button>\n</form>\n"
    )
}

/// Links to paths.
fn links<'a>(context: &Context, paths: impl IntoIterator<Item = &'a StorePath>) -> String {
    let prefix = escaped(&context.prefix);
    let link = |path: &StorePath| {
        let (part, name) = (path.hash_part(), escaped(path.as_str()));
        format!("<li><a href=\"{prefix}/browse/{part}\">{name}</a></li>\n")
    };
    let items: String = paths.into_iter().map(link).collect();
    format!("<ul class=\"paths\">\n{items}</ul>\n")
}

/// A row of a table of facts. The value is HTML.
fn fact(name: &str, value: impl Display) -> String {
    format!("<dt>{name}</dt><dd>{value}</dd>\n")
}

/// How many pages are made at once.
pub(crate) const BROWSING_MAX: u64 = 2;

/// The most paths of one list.
const LISTED_MAX: usize = 500;

/// A page shows what the store has now, and perhaps only to those with a login.
const FIELDS: &str = "Cache-Control: no-store\r\n";

const BUSY: &str = "Content-Type: text/plain\r\nCache-Control: no-store\r\nRetry-After: 1\r\n";
