//! Converts errors of file tools and their commands.

use crate::failure::{ErrorCode, Failure};
use tine_path::PathError;
use tine_path::shell::shell_word;
use tine_tools::run::RunError;
use tine_tools::{EditError, ToolError};

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Failure {
        let message = error.to_string();
        match error {
            ToolError::Operation(source) => source.into(),
            ToolError::Git(source) => source.into(),
            ToolError::Store(source) => source.into(),
            ToolError::NoPath => Failure::new(ErrorCode::Usage, message)
                .hint("`.` is the fork's root, everything else is named from there"),
            ToolError::Path(PathError::Outside(_)) => Failure::new(ErrorCode::PathRefused, message)
                .hint("name it from the fork's root, without `..`"),
            ToolError::Path(source) => source.into(),
            ToolError::Outside { .. } => Failure::new(ErrorCode::PathRefused, message)
                .hint("name it from the fork's root: a tool touches nothing outside its fork"),
            ToolError::NamesDirectory(_) => {
                Failure::new(ErrorCode::WrongKind, message).hint("name the file, without a slash at the end")
            }
            ToolError::Edit { error, .. } => match error {
                EditError::NoEdits => {
                    Failure::new(ErrorCode::EditEmpty, message).hint("give at least one edit")
                }
                EditError::EmptyOld => Failure::new(ErrorCode::EditEmpty, message)
                    .hint("name the text to replace; to make a file, or to replace all of it, write it"),
                EditError::Identical => Failure::new(ErrorCode::EditIdentical, message)
                    .hint("the file has it already: nothing was changed"),
                EditError::NotFound => Failure::new(ErrorCode::EditNotFound, message).hint(
                    "read the file again and name the text exactly as it is there, with all spaces; nothing was changed",
                ),
                EditError::Ambiguous { .. } => Failure::new(ErrorCode::EditAmbiguous, message).hint(
                    "name more of what is around it, or replace all of them (`--all`, `replace_all`); nothing was changed",
                ),
                EditError::TooLarge => Failure::new(ErrorCode::TooLarge, message)
                    .hint("write the file with a program; nothing was changed"),
            },
            ToolError::NotText(_) => Failure::new(ErrorCode::NotText, message)
                .hint("only text in UTF-8 can be edited, or written to an open buffer; nothing was changed"),
            ToolError::UnsavedRead(path) => {
                let hint = format!(
                    "the file would get what was never saved: read it again (`tine tool read {}`), and make the change there; nothing was changed",
                    shell_word(path.as_bytes())
                );
                Failure::new(ErrorCode::UnsavedRead, message).hint(hint)
            }
            ToolError::UnreadBuffer(path) => Failure::new(ErrorCode::UnsavedRead, message).hint(format!(
                "read it first (`tine tool read {}`), then write the whole file; nothing was changed",
                shell_word(path.as_bytes())
            )),
            ToolError::TooLarge { .. } => {
                Failure::new(ErrorCode::TooLarge, message).hint("change it with a program; nothing was changed")
            }
            ToolError::Pattern(_) => Failure::new(ErrorCode::BadPattern, message)
                .hint("the syntax is ripgrep's, one line at a time; a backslash before a special character takes it as it is"),
            ToolError::Glob(_) => Failure::new(ErrorCode::BadPattern, message)
                .hint("a glob is as in a .gitignore: `*.rs`, `src/**`; with `!` before it what matches is left out"),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let message = error.to_string();
        match error {
            RunError::Empty => {
                Failure::new(ErrorCode::Usage, message).hint("give a program and its arguments")
            }
            RunError::NotFound(_) => Failure::new(ErrorCode::CommandNotFound, message)
                .hint("it is looked for in PATH; one with a slash is looked for from the working directory"),
            RunError::NotExecutable { source, .. } => Failure::new(ErrorCode::PermissionDenied, message)
                .cause(source.to_string())
                .hint("`chmod +x` makes it executable; `sh FILE` runs a script as it is"),
            RunError::NoDirectory { dir, source } => Failure::io("enter", &dir, &source)
                .hint("mount the fork (`tine mount`), or name a directory that is there"),
            RunError::Io(source) => Failure::new(ErrorCode::Io, message).cause(source.to_string()),
        }
    }
}
