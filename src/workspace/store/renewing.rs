//! The times of the files that a fork brings back when it goes to another state: told before it
//! goes, given when it has gone, and given when the fork is opened next where the process died
//! between.

use super::{OpenForks, ScratchDir, Store};
use crate::fork::{ForkName, ForkRecord};
use crate::lower_stack::LowerStack;
use crate::{StoreError, Workspace};
use tine_attr::{Ino, InoMap};
use tine_layer::{Dentry, Layer, LayerId, LayerIndex, LayerStack, Node, Op};
use tine_path::DOT_GIT;

impl Store {
    /// The times that files must have once the fork stands on `to`. Where they cannot be told,
    /// files are as old as they were there.
    pub(super) fn renewed(
        &self,
        name: &ForkName,
        workspace: &Workspace,
        to: &LowerStack,
    ) -> InoMap<Node> {
        let renewed = || -> Result<InoMap<Node>, StoreError> {
            let (view, _scratch) = self.looking_at(to)?;
            Ok(workspace.renewed_in(&view)?)
        };
        renewed().unwrap_or_else(|error| {
            log::warn!("{name}: files are as old as they were where it goes: {error}");
            InoMap::default()
        })
    }

    /// Gives the files their times where the process that brought them back died before it had done
    /// so. `layer` is the fork's open one, which stands on `lower_stack`.
    pub(super) fn renew_again(
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
        let (before, _scratch) = self.looking_at(&before)?;
        let nodes = self.renewed(&record.name, &before, lower_stack);
        log::info!(
            "{}: {} files get the time at which they came back",
            record.name,
            nodes.len()
        );
        let ops = nodes.into_iter().map(|(ino, node)| Op::PutNode(ino, node));
        layer.commit(ops.collect())?;
        Ok(())
    }

    /// A view of it that nothing is written to, and what must live as long.
    fn looking_at(&self, lower_stack: &LowerStack) -> Result<(Workspace, ScratchDir), StoreError> {
        let scratch = self.scratch_dir()?;
        let layer = Layer::create(&scratch.path().join("layer"), LayerId(0))?;
        let stack = LayerStack::new(layer, lower_stack.frozen.clone());
        Ok((Workspace::on_lower_stack(lower_stack, stack)?, scratch))
    }
}

/// Whether anything but the fork's own `.git` file was written to the layer.
fn has_more_than_dot_git(index: &LayerIndex) -> bool {
    let dot_git = index.dir(Ino::ROOT).and_then(|names| names.get(DOT_GIT));
    let is_dot_git = |ino| dot_git == Some(Dentry::Entry(ino));
    let mut names = index.dirs().flat_map(|(_, names)| names.iter());
    names.any(|(_, dentry)| Some(dentry) != dot_git)
        || index.nodes().any(|(ino, _)| !is_dot_git(ino))
}
