//! Progress bars on terminals.

use std::io;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;

/// Creates a counter of `things`, named `title`. Draws nothing if standard error is no terminal.
pub(crate) fn counter(things: &str, title: &str) -> ProgressBar {
    let template = format!("{{msg:44}} {{human_pos}} {things}, {{per_sec}}");
    draw(None, &template, title)
}

/// Creates a bar of `len` `things`, named `title`. Draws nothing if standard error is no terminal.
pub(crate) fn bar(len: u64, things: &str, title: &str) -> ProgressBar {
    let template =
        format!("{{msg:44}} {{wide_bar}} {{human_pos}} of {{human_len}} {things}, {{eta}} left");
    draw(Some(len), &template, title)
}

fn draw(len: Option<u64>, template: &str, title: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    // A pseudo-terminal of unknown width reports 0; each step of a bar would print a line there.
    let has_no_width = tcgetwinsize(io::stderr()).is_ok_and(|size| size.ws_col == 0);
    let target =
        if has_no_width { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(len, target);
    bar.with_style(style).with_message(title.to_owned())
}
