// SPDX-License-Identifier: BSD-3-Clause
module.exports = {
  testEnvironment: 'jsdom',
  setupFilesAfterEnv: ['<rootDir>/src/__tests__/setup.ts'],
  testMatch: ['<rootDir>/src/__tests__/**/*.test.{ts,tsx}'],
  transform: {
    '\\.tsx?$': ['ts-jest', { tsconfig: 'tsconfig.test.json' }]
  }
};
