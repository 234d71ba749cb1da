// SPDX-License-Identifier: BSD-3-Clause
declare module '*.svg' {
  const text: string;
  export default text;
}
