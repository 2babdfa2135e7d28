/** What we and the tests use of the npm package ini, which comes without types. */
declare module 'ini' {
  export function unsafe(value: string): string;
  export function stringify(value: object): string;
}
