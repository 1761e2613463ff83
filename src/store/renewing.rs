//! File times after a fork is switched to another state.
//!
//! Files that the switch brings back get new times, so that build tools see them as changed. The
//! times are computed before the switch and set after it. If the process dies in between, they are
//! set when the fork is opened next.

use super::open_fork::OpenForks;
use super::{ScratchDir, Store};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use tine_attr::{Ino, InoMap};
use tine_layer::{Dentry, Layer, LayerId, LayerIndex, LayerStack, Node, Op};
use tine_path::DOT_GIT;
use tine_workspace::{LowerStack, Workspace};

impl Store {
    /// Computes file times for the fork once it is on `to`.
    ///
    /// If that fails, files keep the times that they had in that state.
    pub(super) fn renewed_times(
        &self,
        name: &ForkName,
        workspace: &Workspace,
        to: &LowerStack,
    ) -> InoMap<Node> {
        let renewed = || -> Result<InoMap<Node>, StoreError> {
            let (view, _scratch) = self.open_view(to)?;
            Ok(workspace.renewed_in(&view)?)
        };
        renewed().unwrap_or_else(|error| {
            log::warn!("{name}: files are as old as they were where it goes: {error}");
            InoMap::default()
        })
    }

    /// Sets file times if the process died before it had done so.
    ///
    /// `layer` is the fork's open layer over `lower_stack`.
    pub(super) fn set_missing_times(
        &self,
        open: &mut OpenForks,
        record: &ForkRecord,
        layer: &mut Layer,
        lower_stack: &LowerStack,
    ) -> Result<(), StoreError> {
        let Some(renewed) = &record.renewed else {
            return Ok(());
        };
        if renewed.open_layer != record.open_layer || has_more_than_dot_git(layer.index()) {
            return Ok(());
        }
        let list = self.places.read_snapshots(&record.name)?;
        let Some(before) = list.find(&renewed.before) else {
            return Ok(());
        };
        let before = self.lower_stack_of(open, &before.as_fork(record))?;
        let (before, _scratch) = self.open_view(&before)?;
        let nodes = self.renewed_times(&record.name, &before, lower_stack);
        log::info!(
            "{}: {} files get the time at which they came back",
            record.name,
            nodes.len()
        );
        let ops = nodes.into_iter().map(|(ino, node)| Op::PutNode(ino, node));
        layer.commit(ops.collect())?;
        Ok(())
    }

    /// Opens a view that nothing is written to, and its temporary directory.
    ///
    /// The directory must live as long as the view.
    fn open_view(&self, lower_stack: &LowerStack) -> Result<(Workspace, ScratchDir), StoreError> {
        let scratch = self.scratch_dir()?;
        let layer = Layer::create(&scratch.path().join("layer"), LayerId(0))?;
        let stack = LayerStack::new(layer, lower_stack.frozen.clone());
        Ok((Workspace::on_lower_stack(lower_stack, stack)?, scratch))
    }
}

/// Returns whether the layer has anything but the fork's `.git` file.
fn has_more_than_dot_git(index: &LayerIndex) -> bool {
    let dot_git = index.dir(Ino::ROOT).and_then(|names| names.get(DOT_GIT));
    let is_dot_git = |ino| dot_git == Some(Dentry::Entry(ino));
    let mut names = index.dirs().flat_map(|(_, names)| names.iter());
    names.any(|(_, dentry)| Some(dentry) != dot_git)
        || index.nodes().any(|(ino, _)| !is_dot_git(ino))
}
