-- Neovim and tine: what an agent writes to a file that is open here comes into the buffer, and not into the file beneath it.
--
--   :luafile scripts/editors/tine.lua        or in init.lua: dofile('…/scripts/editors/tine.lua')
--
--   :TineMerge [person|agent|both]   merge what an agent wrote; with a word, settle its conflicts so
--   :TineConflicts                   the conflicts as a location list, and the agent's text beside this one, as a diff
--
-- It runs `tine buffer serve` once for each repository that has forks; docs/editors.md says what goes in and out. A buffer's text has
-- a version, one more after each change that is sent. An edit is applied to the version that it is for, or not at all: what was typed
-- in between is sent already, and the edit comes again.
--
-- vim.g.tine_command   the program and its first words; default {'tine'}
-- vim.g.tine_save      whether a buffer that was saved is saved again after an agent's edit, so that programs see it; default true

local M = { bridges = {}, buffers = {} }

local function option(name, default)
  local value = vim.g[name]
  if value == nil then return default end
  return value
end

-- The repository around a file: where `.git` is. Only one with forks is of interest.
local function root_of(name)
  local dir = vim.fn.fnamemodify(name, ':h')
  while true do
    if vim.loop.fs_stat(dir .. '/.git') then break end
    local above = vim.fn.fnamemodify(dir, ':h')
    if above == dir then return nil end
    dir = above
  end
  local common = vim.fn.systemlist({ 'git', '-C', dir, 'rev-parse', '--git-common-dir' })[1]
  if vim.v.shell_error ~= 0 or not common then return nil end
  if common:sub(1, 1) ~= '/' then common = dir .. '/' .. common end
  return vim.loop.fs_stat(common .. '/tine') and dir or nil
end

local function line_end(buf)
  return vim.bo[buf].fileformat == 'dos' and '\r\n' or '\n'
end

local function is_empty(buf)
  if vim.api.nvim_buf_line_count(buf) > 1 then return false end
  return vim.api.nvim_buf_call(buf, function() return vim.fn.line2byte(2) end) == -1
end

-- Lines of the buffer as the file has them.
local function text_of(buf, first, last)
  local lines = vim.api.nvim_buf_get_lines(buf, first, last, false)
  local ends = line_end(buf)
  local is_whole = first == 0 and last == -1
  if #lines == 0 or (is_whole and is_empty(buf)) then return '' end
  local text = table.concat(lines, ends)
  if is_whole and not vim.bo[buf].endofline then return text end
  return text .. ends
end

-- What no JSON can hold, or the buffer has otherwise than the file, stays the editor's alone.
local function is_text(buf)
  local encoding = vim.bo[buf].fileencoding
  if vim.bo[buf].binary or vim.bo[buf].bomb or vim.bo[buf].fileformat == 'mac' then return false end
  if encoding ~= '' and encoding ~= 'utf-8' then return false end
  for _, line in ipairs(vim.api.nvim_buf_get_lines(buf, 0, -1, false)) do
    if line:find('\n', 1, true) or vim.fn.iconv(line, 'utf-8', 'utf-8') ~= line then return false end
  end
  return true
end

local function send(bridge, message, answered)
  bridge.last_id = bridge.last_id + 1
  message.id = bridge.last_id
  bridge.waiting[message.id] = answered or function() end
  pcall(vim.fn.chansend, bridge.job, vim.json.encode(message) .. '\n')
end

local apply

-- All of the text goes to the daemon, which says the version that it has then. Until that nothing else of this buffer is sent.
-- Where it goes again meanwhile, only the last answer says what the daemon has.
local function begin(state, message)
  state.version, state.is_dirty = nil, false
  state.beginning = state.beginning + 1
  local beginning = state.beginning
  message.path, message.text = state.name, text_of(state.buf, 0, -1)
  send(state.bridge, message, function(answer)
    if M.buffers[state.buf] ~= state or state.beginning ~= beginning then return end
    if answer.error then
      -- Another editor has it, or it is not a file of a fork. Without a daemon it is opened when there is one again.
      if answer.error.code ~= 'daemon-unreachable' then M.buffers[state.buf] = nil end
      return
    end
    state.version = answer.ok.version
    if state.is_dirty then return begin(state, { buffer = 'change' }) end
    local is_saved, edit = state.is_saved, state.edit
    state.is_saved, state.edit = false, nil
    if is_saved then send(state.bridge, { buffer = 'save', path = state.name, base = state.version }) end
    if edit then apply(state, edit) end
  end)
end

-- Before the bridge is attached nothing can be opened; all is when it is.
local function open(state)
  if not state.bridge.is_attached then return end
  begin(state, { buffer = 'open', saved = not vim.bo[state.buf].modified })
end

-- What makes the next version.
local function step(state, message)
  message.path, message.base = state.name, state.version
  state.version = state.version + 1
  local beginning = state.beginning
  send(state.bridge, message, function(answer)
    local is_stale = answer.error and answer.error.code == 'buffer-stale'
    local is_newest = M.buffers[state.buf] == state and state.beginning == beginning
    if is_stale and is_newest then begin(state, { buffer = 'change' }) end
  end)
end

local function saved(state)
  if not state.version then
    state.is_saved = true
    return
  end
  send(state.bridge, { buffer = 'save', path = state.name, base = state.version })
end

local function on_lines(state, first, old_last, new_last)
  if state.applying then return end
  if not state.version then
    state.is_dirty, state.is_saved = true, false
    return
  end
  local buf = state.buf
  local count = vim.api.nvim_buf_line_count(buf)
  local is_plain = vim.bo[buf].endofline and count > 1 and count - new_last + old_last > 1
  if is_plain then
    local text = first == new_last and '' or text_of(buf, first, new_last)
    step(state, { buffer = 'change', patches = { { first_line = first, lines = old_last - first, text = text } } })
  else
    -- Whether a last line has an end, and whether an only one is there at all, no patch of lines can tell.
    step(state, { buffer = 'change', text = text_of(buf, 0, -1) })
  end
end

local function split(text, ends)
  if text == '' then return {}, true end
  local has_end = text:sub(-1) == '\n'
  local lines = vim.split(has_end and text:sub(1, -2) or text, '\n', { plain = true })
  if ends == '\r\n' then
    for at, line in ipairs(lines) do lines[at] = line:gsub('\r$', '') end
  end
  return lines, has_end
end

-- One undo takes back what was applied, and nothing that was typed before or after it.
local function break_undo(buf)
  vim.api.nvim_buf_call(buf, function() vim.cmd('let &l:undolevels = &l:undolevels') end)
end

apply = function(state, event)
  local buf = state.buf
  if not state.version then
    state.edit = event
    return
  end
  if event.version ~= state.version or not vim.bo[buf].modifiable then return end
  local was_saved = not vim.bo[buf].modified
  local ends = line_end(buf)
  state.applying = true
  break_undo(buf)
  for at = #event.patches, 1, -1 do
    local patch = event.patches[at]
    local lines, has_end = split(patch.text, ends)
    local first, last = patch.first_line, patch.first_line + patch.lines
    local is_last = last >= vim.api.nvim_buf_line_count(buf)
    if is_empty(buf) then last = -1 end
    vim.api.nvim_buf_set_lines(buf, first, last, false, lines)
    if is_last then vim.bo[buf].endofline = has_end end
  end
  break_undo(buf)
  state.applying = false
  state.conflicts = nil
  step(state, { buffer = 'applied' })
  if was_saved and option('tine_save', true) then
    -- A last line without an end stays one.
    local fixes = vim.bo[buf].fixendofline
    state.applying, vim.bo[buf].fixendofline = true, false
    local is_written = pcall(vim.api.nvim_buf_call, buf, function() vim.cmd('silent noautocmd update') end)
    vim.bo[buf].fixendofline = fixes
    state.applying = false
    if is_written then saved(state) end
  end
end

local function by_name(bridge, name)
  for _, state in pairs(M.buffers) do
    if state.bridge == bridge and state.name == name then return state end
  end
end

local function on_event(bridge, event)
  if event.event == 'attached' then
    bridge.is_attached = true
    for _, state in pairs(M.buffers) do
      if state.bridge == bridge then open(state) end
    end
    return
  end
  local state = event.path and by_name(bridge, event.path)
  if not state then return end
  if event.event == 'edit' then
    apply(state, event)
  elseif event.event == 'conflict' then
    state.conflicts = event.conflicts
    vim.notify('tine: what an agent wrote to ' .. state.name .. ' does not fit: :TineConflicts', vim.log.levels.WARN)
  elseif event.event == 'written' then
    -- The file has what agents wrote; the buffer stays as it is, and saving it is no conflict.
    vim.api.nvim_create_autocmd('FileChangedShell', {
      buffer = state.buf, once = true, callback = function() vim.v.fcs_choice = '' end,
    })
    vim.cmd('checktime ' .. state.buf)
  elseif event.event == 'closed' then
    M.buffers[state.buf] = nil
    vim.notify('tine: the fork of ' .. state.name .. ' is not mounted any more', vim.log.levels.WARN)
  end
end

local function on_line(bridge, line)
  if line == '' then return end
  local message = vim.json.decode(line)
  if message.event then return on_event(bridge, message) end
  local answered = bridge.waiting[message.id]
  if answered then
    bridge.waiting[message.id] = nil
    answered(message)
  end
end

local function bridge_of(root)
  local bridge = M.bridges[root]
  if bridge then return bridge end
  bridge = { last_id = 0, waiting = {}, partial = '', is_attached = false }
  local command = vim.list_extend(vim.deepcopy(option('tine_command', { 'tine' })), { '-C', root, 'buffer', 'serve' })
  local started, job = pcall(vim.fn.jobstart, command, {
    on_stdout = function(_, data)
      bridge.partial = bridge.partial .. data[1]
      for at = 2, #data do
        on_line(bridge, bridge.partial)
        bridge.partial = data[at]
      end
    end,
    on_exit = function()
      M.bridges[root] = nil
      for buf, state in pairs(M.buffers) do
        if state.bridge == bridge then M.buffers[buf] = nil end
      end
    end,
  })
  if not started or job <= 0 then return nil end
  bridge.job = job
  M.bridges[root] = bridge
  return bridge
end

function M.attach(buf)
  if M.buffers[buf] or vim.bo[buf].buftype ~= '' then return end
  local name = vim.api.nvim_buf_get_name(buf)
  local root = name ~= '' and root_of(name)
  if not root or not is_text(buf) then return end
  local bridge = bridge_of(root)
  if not bridge then return end
  local state = { buf = buf, name = name, bridge = bridge, applying = false, beginning = 0 }
  M.buffers[buf] = state
  open(state)
  vim.api.nvim_buf_attach(buf, false, {
    on_lines = function(_, _, _, first, old_last, new_last)
      if M.buffers[buf] ~= state then return true end
      on_lines(state, first, old_last, new_last)
    end,
    on_reload = function()
      if M.buffers[buf] ~= state then return true end
      open(state)
    end,
    on_detach = function() M.detach(buf) end,
  })
end

function M.detach(buf)
  local state = M.buffers[buf]
  M.buffers[buf] = nil
  if state then send(state.bridge, { buffer = 'close', path = state.name }) end
end

local function current()
  local state = M.buffers[vim.api.nvim_get_current_buf()]
  if not state then vim.notify('tine: no fork has this file', vim.log.levels.WARN) end
  return state
end

function M.merge(side)
  local state = current()
  if not state then return end
  local message = { buffer = 'merge', path = state.name, side = side ~= '' and side or nil }
  send(state.bridge, message, function(answer)
    if answer.error then
      vim.notify('tine: ' .. answer.error.message, vim.log.levels.WARN)
    elseif #answer.ok.conflicts > 0 then
      state.conflicts = answer.ok.conflicts
      M.conflicts()
    end
  end)
end

function M.conflicts()
  local state = current()
  if not state then return end
  send(state.bridge, { buffer = 'show', path = state.name }, function(answer)
    if not answer.ok or answer.ok.agent == nil or answer.ok.agent == vim.NIL then return end
    local items = {}
    for _, conflict in ipairs(answer.ok.conflicts) do
      local says = conflict.agent == '' and 'the agent took these lines out' or 'the agent has: ' .. conflict.agent
      table.insert(items, { bufnr = state.buf, lnum = conflict.line, text = says:gsub('\n', ' | ') })
    end
    vim.fn.setloclist(0, {}, ' ', { title = 'tine conflicts', items = items })
    local filetype = vim.bo[state.buf].filetype
    vim.cmd('diffthis | rightbelow vnew')
    vim.bo.buftype, vim.bo.bufhidden = 'nofile', 'wipe'
    vim.api.nvim_buf_set_lines(0, 0, -1, false, (split(answer.ok.agent, '\n')))
    vim.bo.modifiable, vim.bo.filetype = false, filetype
    vim.cmd('diffthis | wincmd p')
  end)
end

local group = vim.api.nvim_create_augroup('tine', {})
vim.api.nvim_create_autocmd({ 'BufReadPost', 'BufNewFile', 'BufWinEnter' }, {
  group = group,
  callback = function(args) M.attach(args.buf) end,
})
vim.api.nvim_create_autocmd('BufWritePost', {
  group = group,
  callback = function(args)
    local state = M.buffers[args.buf]
    if not state then return M.attach(args.buf) end
    -- The file has an end that the buffer had not.
    if vim.bo[args.buf].fixendofline then
      state.applying, vim.bo[args.buf].endofline = true, true
      state.applying = false
    end
    -- All of it: should the daemon ever have had another text, it has this one now.
    if state.version then step(state, { buffer = 'change', text = text_of(args.buf, 0, -1) }) end
    saved(state)
  end,
})
-- What the file will hold changes by these, too.
vim.api.nvim_create_autocmd('OptionSet', {
  group = group,
  pattern = { 'endofline', 'fileformat' },
  callback = function()
    local state = M.buffers[vim.api.nvim_get_current_buf()]
    if not state or state.applying then return end
    if not state.version then
      state.is_dirty, state.is_saved = true, false
    else
      step(state, { buffer = 'change', text = text_of(state.buf, 0, -1) })
    end
  end,
})
vim.api.nvim_create_autocmd('BufFilePost', {
  group = group,
  callback = function(args)
    M.detach(args.buf)
    M.attach(args.buf)
  end,
})
vim.api.nvim_create_user_command('TineMerge', function(args) M.merge(args.args) end, {
  nargs = '?',
  complete = function() return { 'person', 'agent', 'both' } end,
})
vim.api.nvim_create_user_command('TineConflicts', M.conflicts, {})

-- Buffers that were open before.
for _, buf in ipairs(vim.api.nvim_list_bufs()) do
  if vim.api.nvim_buf_is_loaded(buf) then M.attach(buf) end
end

return M
