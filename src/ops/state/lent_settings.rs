//! Settings of the main repository that forks see.

use std::sync::Arc;

use parking_lot::Mutex;

use tine_dotgit::SharedSettings;
use tine_git::Repository;
use tine_git::own::settings::text::Setting;
use tine_git::own::settings::{main_settings, shared_of};

/// Text that was made of settings.
struct Made {
    of: Arc<[Setting]>,
    text: Vec<u8>,
}

/// Returns the function that lends the settings of `repository` to a fork.
pub(crate) fn lender(repository: &Repository, untrusted: bool) -> SharedSettings {
    let repository = repository.clone();
    let made: Mutex<Option<Made>> = Mutex::new(None);
    Arc::new(move || {
        let settings = main_settings(&repository)
            .inspect_err(|error| log::warn!("the settings that forks see: {error}"))
            .ok()?;
        let mut made = made.lock();
        if let Some(made) = &*made
            && Arc::ptr_eq(&made.of, &settings)
        {
            return Some(made.text.clone());
        }
        let text = shared_of(&repository, &settings, untrusted);
        *made = Some(Made {
            of: settings,
            text: text.clone(),
        });
        Some(text)
    })
}
