//! The terminal behind standard output.

use std::io::IsTerminal;

/// Returns the terminal's width in columns; `None` if there is none.
pub(super) fn columns() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(stdout)?;
    (columns > 0).then_some(usize::from(columns))
}
