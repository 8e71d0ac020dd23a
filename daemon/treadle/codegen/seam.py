"""The text of ``seam.ts``, which stands beside generated TypeScript modules (codegen page, section 5)."""

from __future__ import annotations

from typing import Final

FILE_NAME: Final = "seam.ts"

SOURCE: Final = """\
/**
 * The one seam of the generated modules: each of their functions returns one
 * call of `invoke`. Give `configure` a caller that speaks the broker's socket
 * protocol before the first call.
 */

/** One block of a tool's answer; `text` is there for blocks of the type "text". */
export interface Block {
  readonly type: string;
  readonly text?: string;
}

/** What a tool answered. `structured` is typed by the tool's output schema (not validated). */
export interface ToolResult<T = unknown> {
  readonly content: readonly Block[];
  readonly is_error: boolean;
  readonly structured?: T;
}

/** One argument under its wire name. An undefined value is left out; null is sent as null. */
export type Argument = readonly [name: string, value: unknown];

/** Carries a call to the broker. `server` and `tool` are the original names. */
export interface Caller {
  call(
    server: string,
    tool: string,
    values: { readonly [name: string]: unknown },
  ): Promise<ToolResult>;
}

let current: Caller | undefined;

/** Let the generated functions call through `caller` from now on. */
export function configure(caller: Caller): void {
  current = caller;
}

/** Call a tool; rejects when no caller is configured, or as the caller rejects. */
export async function invoke<T>(
  server: string,
  tool: string,
  values: readonly Argument[] | { readonly [name: string]: unknown },
): Promise<ToolResult<T>> {
  if (current === undefined) {
    throw new Error("no caller is configured: call configure() of seam.js first");
  }
  const entries: readonly Argument[] = isList(values) ? values : Object.entries(values);
  const given = entries.filter(([, value]) => value !== undefined);
  // fromEntries makes own properties of every name, __proto__ among them.
  const result = await current.call(server, tool, Object.fromEntries(given));
  return result as ToolResult<T>;
}

function isList(
  values: readonly Argument[] | { readonly [name: string]: unknown },
): values is readonly Argument[] {
  return Array.isArray(values);
}
"""
"""A small documented module: ``Caller``, ``ToolResult``, ``configure`` and ``invoke``."""
