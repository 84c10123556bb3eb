//! Progress bars, for whoever waits at a terminal; elsewhere nothing is drawn.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `len` `things` for the work called `title`.
pub(crate) fn bar(len: u64, things: &str, title: &str) -> ProgressBar {
    let template =
        format!("{{msg:44}} {{wide_bar}} {{human_pos}} of {{human_len}} {things}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).expect("the template is well formed");
    ProgressBar::new(len).with_style(style).with_message(title.to_owned())
}
