//! Makes sequences of mailboxes.

use std::path::Path;

use super::SequenceItem;
use crate::ChangeError;
use crate::review::parse_id;
use tine_git::Repository;
use tine_git::mailbox::{Subjects, read_mail, split_mailbox};
use tine_store::Store;

/// Returns the mails of a mailbox as items, with contents as blobs.
///
/// # Errors
/// [`ChangeError::Git`] if the mailbox is not one or a blob cannot be written,
/// [`ChangeError::Store`] if there is no scratch space.
pub fn of_mailbox(
    store: &Store,
    repository: &Repository,
    mailbox: &Path,
    subjects: Subjects,
    three_way: bool,
) -> Result<Vec<SequenceItem>, ChangeError> {
    let scratch = store.scratch_dir()?;
    let blob = |bytes: &[u8]| repository.write_blob(&mut &*bytes, bytes.len() as u64);
    let mut items = Vec::new();
    for file in split_mailbox(mailbox, scratch.path())? {
        let mail = read_mail(&file, subjects)?;
        let author = repository.author_of(&mail)?;
        items.push(SequenceItem::Mail {
            patch: if mail.patch.is_empty() {
                None
            } else {
                Some(blob(&mail.patch)?.to_string())
            },
            commit: mail.commit,
            subject: mail.subject,
            message: blob(&mail.message)?.to_string(),
            author,
            three_way,
        });
    }
    Ok(items)
}

/// Replaces messages and authors of mails with the original commits'.
///
/// Only commits that exist here are used. A mail cannot carry every message.
///
/// # Errors
/// [`ChangeError::Git`] if a commit cannot be read or a blob written.
pub fn take_messages(
    repository: &Repository,
    items: &mut [SequenceItem],
) -> Result<(), ChangeError> {
    let mut commit_ids = Vec::new();
    for item in &*items {
        if let SequenceItem::Mail {
            commit: Some(hex), ..
        } = item
        {
            let commit_id = parse_id(hex)?;
            if repository.has_object(commit_id) {
                commit_ids.push(commit_id);
            }
        }
    }
    let contents = repository.commit_contents(&commit_ids)?;
    for item in items {
        let SequenceItem::Mail {
            commit: Some(hex),
            message,
            author,
            ..
        } = item
        else {
            continue;
        };
        let commit_id = parse_id(hex)?;
        if let Some(content) = contents
            .iter()
            .find(|content| content.commit_id == commit_id)
        {
            let id = repository.write_blob(
                &mut content.message.as_slice(),
                content.message.len() as u64,
            )?;
            *message = id.to_string();
            author.clone_from(&content.author);
        }
    }
    Ok(())
}
